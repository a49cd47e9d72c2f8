//! What must hold for any bytes at all: properties of the decoder and the command table.
//!
//! Called by: the fuzz targets (`fuzz/`), and `tests/short`, which mutates [`corpus`].
//! Bound: time and memory of a check are proportional to its input.
//! Invariant: a check depends on its input alone, so a finding replays from its bytes. The
//! places where input is cut are drawn from a generator seeded with the input.
//!
//! Each function returns if all is well and panics with what it saw if not:
//!
//! ```
//! heatsink_fuzz_oracles::request(b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n");
//! heatsink_fuzz_oracles::reply(b"$5\r\nhello\r\n");
//! heatsink_fuzz_oracles::command(b"*0\r\nGET\na");
//! ```

mod command;
pub mod corpus;
mod model;
mod pieces;
mod reply;
mod request;

pub use command::check as command;
pub use reply::check as reply;
pub use request::check as request;
