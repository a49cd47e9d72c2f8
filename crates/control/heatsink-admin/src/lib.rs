//! The HTTP side of Heatsink: an API, metrics and events over a trait, and a small client.
//!
//! - [`control`]: the trait that a running control plane implements, and its types.
//! - [`Server`]: routes over it, on a listener, with the bounds in [`Settings`].
//! - [`metrics`]: the figures and their Prometheus text.
//! - [`key_name`]: how keys are written, and how they are hidden.
//! - [`HotKeyView`]: a hot key in JSON, the same for whoever writes it and whoever reads it.
//! - [`client`]: the same API from the other side, for the command line.
//!
//! Promised: whatever comes in, the process stays within the bounds of [`Limits`]; errors are
//! problem documents; the `OpenAPI` document describes all of it; and nothing here is on the
//! path of a Redis request.
//!
//! ```no_run
//! use std::net::TcpListener;
//! use std::sync::Arc;
//!
//! use heatsink_admin::{Control, Server, Settings};
//!
//! async fn serve(control: Arc<dyn Control>) -> Result<(), Box<dyn std::error::Error>> {
//!     let listener = TcpListener::bind("127.0.0.1:9600")?;
//!     let server = Server::new(listener, Settings::default(), control)?;
//!     server.run(std::future::pending()).await?;
//!     Ok(())
//! }
//! ```

mod access;
mod api;
mod audit;
pub mod client;
pub mod control;
mod history;
pub mod key_name;
mod listing;
mod load;
pub mod metrics;
mod page;
mod peers;
mod problem;
mod query;
mod rate;
mod server;
mod settings;
pub mod timestamp;
mod view;
mod vocabulary;

pub use access::Token;
pub use control::Control;
pub use key_name::Privacy;
pub use server::{Server, StartError};
pub use settings::{Limits, Settings};
pub use view::{HotKeyView, SplitView};
