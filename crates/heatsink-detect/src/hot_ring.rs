//! The hot ring: to come.
