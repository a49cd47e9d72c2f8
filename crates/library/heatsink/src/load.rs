//! Running a loader: one of a bounded number, timed, and its panic caught.
//!
//! Called by: flights.
//! Bound: `max_concurrent_loads` loaders of a cache run at once; others wait, within their flight's
//! deadline.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use crate::error::Failure;
use crate::loaded::{Context, LoadResult, Loaded};
use crate::sync::timeout_at;

pub(crate) type LoadEnd<V> = Result<Loaded<V>, Failure>;
type LoadFuture<V> = Pin<Box<dyn Future<Output = LoadEnd<V>> + Send>>;

/// A caller's loader without its types.
pub(crate) struct Loader<V>(Box<dyn FnOnce(Context<V>) -> LoadFuture<V> + Send>);

impl<V: Send + Sync + 'static> Loader<V> {
    pub(crate) fn new<F, Fut, R, E>(loader: F) -> Self
    where
        F: FnOnce(Context<V>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
        R: LoadResult<V>,
        E: Send + Sync + 'static,
    {
        Self::of(move |context| async move {
            match loader(context).await {
                Ok(result) => Ok(result.into_loaded()),
                Err(error) => Err(Failure::Load(Arc::new(error))),
            }
        })
    }

    pub(crate) fn of<F, Fut>(loader: F) -> Self
    where
        F: FnOnce(Context<V>) -> Fut + Send + 'static,
        Fut: Future<Output = LoadEnd<V>> + Send + 'static,
    {
        Self(Box::new(move |context| Box::pin(loader(context))))
    }

    /// Runs it until the context's deadline; `begun` is called when its turn has come. Also says how
    /// long it took. `None`: its turn has not come.
    pub(crate) async fn run(
        self,
        turns: &Semaphore,
        begun: impl FnOnce(),
        context: Context<V>,
    ) -> Option<(LoadEnd<V>, Duration)> {
        let deadline = context.deadline;
        let _turn = timeout_at(deadline.into(), turns.acquire()).await.ok()?.ok()?;
        begun();
        let start = Instant::now();
        let loading = caught(async { (self.0)(context).await });
        let end = match timeout_at(deadline.into(), loading).await {
            Ok(end) => end.and_then(|end| end),
            Err(_) => Err(Failure::Timeout),
        };
        Some((end, start.elapsed()))
    }
}

/// Work whose panic is an end like any other.
pub(crate) async fn caught<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    let mut work = pin!(work);
    // What panicked is not polled again: it is dropped with this.
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
        Ok(poll) => poll.map(Ok),
        Err(panic) => Poll::Ready(Err(panicked(&*panic))),
    })
    .await
}

fn panicked(panic: &(dyn Any + Send)) -> Failure {
    let words = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("with something that is no text");
    Failure::Panicked(words.into())
}
