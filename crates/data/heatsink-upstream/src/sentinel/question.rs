//! What is asked of sentinels and servers, and what the answers mean.

use heatsink_resp::value::Value;

use super::SocketName;
use super::line::{Line, accepted};
use super::trouble::Trouble;
use crate::error::LinkError;

/// What a sentinel said.
pub(super) struct Answer {
    /// Where the primary is.
    pub(super) primary: SocketName,
    /// Grows with every failover; `None` if this sentinel does not tell.
    pub(super) epoch: Option<u64>,
    /// The other sentinels that it knows.
    pub(super) others: Vec<SocketName>,
}

/// Asks a sentinel about the primary `name`.
pub(super) fn ask(line: &mut Line, name: &str) -> Result<Answer, Trouble> {
    let name = name.as_bytes();
    line.send(&[
        &[b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", name],
        &[b"SENTINEL", b"MASTER", name],
        &[b"SENTINEL", b"SENTINELS", name],
    ])?;
    let (address, master, others) = (line.reply()?, line.reply()?, line.reply()?);
    let address = accepted(address)?;
    let primary = match address.array() {
        [] => return Err(Trouble::UnknownName),
        [host, port] => socket_name(host, port).ok_or(LinkError::Garbled)?,
        _ => return Err(LinkError::Garbled.into()),
    };
    // The other two may be forbidden to us: then this is a little less clever.
    let epoch = master.get(b"config-epoch").and_then(number);
    let others = others.array().iter();
    let others = others.filter_map(|other| socket_name(other.get(b"ip")?, other.get(b"port")?));
    Ok(Answer { primary, epoch, others: others.collect() })
}

/// Asks a server what it is; true for a primary.
pub(super) fn is_primary(line: &mut Line) -> Result<bool, LinkError> {
    let role = accepted(line.call(&[b"ROLE"])?)?;
    Ok(role.array().first().and_then(Value::text) == Some(b"master"))
}

fn socket_name(host: &Value, port: &Value) -> Option<SocketName> {
    let host = std::str::from_utf8(host.text()?).ok().filter(|host| !host.is_empty())?;
    let port = number(port).filter(|port| *port != 0)?;
    Some(SocketName { host: host.to_owned(), port })
}

fn number<N: std::str::FromStr>(value: &Value) -> Option<N> {
    std::str::from_utf8(value.text()?).ok()?.parse().ok()
}
