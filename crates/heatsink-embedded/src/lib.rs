//! heatsink-embedded.
