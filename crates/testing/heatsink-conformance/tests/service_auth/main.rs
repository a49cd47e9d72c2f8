//! Logins that Heatsink checks by its own users file, beside a server that has the same users.

mod before_login;
mod cluster;
mod logins;
mod secrets;
mod support;
