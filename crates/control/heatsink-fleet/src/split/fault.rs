//! Places at which a test can have the process end, as if it had been killed there.

/// Ends the process here if `HEATSINK_FAULT` names this place; only in builds with debug
/// assertions.
pub(crate) fn point(label: &str) {
    #[cfg(debug_assertions)]
    {
        static WANTED: std::sync::LazyLock<Option<String>> =
            std::sync::LazyLock::new(|| std::env::var("HEATSINK_FAULT").ok());
        if WANTED.as_deref() == Some(label) {
            tracing::error!(label, "ends here, because HEATSINK_FAULT says so");
            std::process::abort();
        }
    }
    let _ = label;
}
