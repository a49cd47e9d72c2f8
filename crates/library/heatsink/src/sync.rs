//! What threads and tasks share or wait with, so that tests can explore their schedules
//! (`schedules`).
//!
//! Called by: whatever keeps an atomic, a lock or a task.
//! Invariant: with the feature `shuttle` each of these is a point at which another thread may go
//! on. The memory underneath (`quick_cache`) and the runtime's notifications are single steps then.

#[cfg(feature = "shuttle")]
pub(crate) use explored::*;
#[cfg(not(feature = "shuttle"))]
pub(crate) use real::*;

#[cfg(not(feature = "shuttle"))]
mod real {
    pub(crate) use std::sync::Mutex;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

    pub(crate) use tokio::task::consume_budget;
    pub(crate) use tokio::time::{timeout, timeout_at};

    /// Where tasks are spawned: the runtime on which the cache was built.
    #[derive(Clone)]
    pub(crate) struct Spawner(tokio::runtime::Handle);

    impl Spawner {
        /// `None`: there is no runtime here.
        pub(crate) fn here() -> Option<Self> {
            tokio::runtime::Handle::try_current().ok().map(Self)
        }

        pub(crate) fn spawn<F>(&self, task: F) -> tokio::task::JoinHandle<F::Output>
        where
            F: Future<Output: Send> + Send + 'static,
        {
            self.0.spawn(task)
        }
    }

    /// A place at which a schedule may change.
    #[inline]
    pub(crate) fn step() {}
}

#[cfg(feature = "shuttle")]
mod explored {
    use std::time::Duration;

    pub(crate) use shuttle::sync::Mutex;
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

    #[derive(Clone)]
    pub(crate) struct Spawner;

    impl Spawner {
        pub(crate) fn here() -> Option<Self> {
            Some(Self)
        }

        pub(crate) fn spawn<F>(&self, task: F) -> shuttle::future::JoinHandle<F::Output>
        where
            F: Future<Output: Send> + Send + 'static,
        {
            shuttle::future::spawn(task)
        }
    }

    /// No time passes in a schedule.
    pub(crate) async fn timeout<F: Future>(
        _: Duration,
        work: F,
    ) -> Result<F::Output, tokio::time::error::Elapsed> {
        Ok(work.await)
    }

    pub(crate) async fn timeout_at<F: Future>(
        _: tokio::time::Instant,
        work: F,
    ) -> Result<F::Output, tokio::time::error::Elapsed> {
        Ok(work.await)
    }

    pub(crate) async fn consume_budget() {}

    pub(crate) fn step() {
        shuttle::thread::yield_now();
    }
}
