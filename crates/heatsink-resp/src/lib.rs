//! heatsink-resp.
