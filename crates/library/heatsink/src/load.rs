//! Running a loader: one of a bounded number, timed, and its panic caught.
//!
//! Called by: flights.
//! Bound: `max_concurrent_loads` loaders of a cache run at once; others wait, within their flight's
//! deadline.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use crate::error::Failure;
use crate::loaded::{Context, LoadResult, Loaded};

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

    /// Runs it; `begun` is called when its turn has come. Also says how long it took.
    pub(crate) async fn run(
        self,
        turns: &Semaphore,
        begun: impl FnOnce(),
        context: Context<V>,
    ) -> (LoadEnd<V>, Duration) {
        let Ok(_turn) = turns.acquire().await else {
            return (Err(Failure::Closed), Duration::ZERO);
        };
        begun();
        let start = Instant::now();
        let loading: LoadFuture<V> = match catch_unwind(AssertUnwindSafe(|| (self.0)(context))) {
            Ok(loading) => loading,
            Err(panic) => return (Err(panicked(&*panic)), start.elapsed()),
        };
        let end = Caught(loading).await;
        (end, start.elapsed())
    }
}

/// A load whose panic is an end like any other.
struct Caught<V>(LoadFuture<V>);

impl<V> Future for Caught<V> {
    type Output = LoadEnd<V>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<LoadEnd<V>> {
        // A future that panicked is not polled again: it is dropped with this one.
        match catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(cx))) {
            Ok(poll) => poll,
            Err(panic) => Poll::Ready(Err(panicked(&*panic))),
        }
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Failure {
    let words = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("with something that is no text");
    Failure::Panicked(words.into())
}
