//! The atomics and locks of what threads share, so that tests can explore their schedules.

#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering},
};

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering},
};
