//! heatsink-testkit.
