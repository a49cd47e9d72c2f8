//! Errors of a cluster that are about where and when, not about the request.
//!
//! Called by: upstream links, for replies that begin with `-`.

/// What an error asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redirect<'a> {
    /// The slot has another owner, now and later.
    Moved {
        /// The slot asked for.
        slot: u16,
        /// Its owner; empty if the server does not tell it: then the host that was asked.
        host: &'a str,
        /// The owner's port.
        port: u16,
    },
    /// This request, after `ASKING`, is for another node; the slot is on its way there.
    Ask {
        /// The slot asked for.
        slot: u16,
        /// Where to ask; empty as in `Moved`.
        host: &'a str,
        /// The port there.
        port: u16,
    },
    /// The keys of the request are partly here, partly on their way: later.
    TryAgain,
    /// The cluster, or the part that has the slot, does not serve: later.
    ClusterDown,
    /// The node reads its data from disk: later, or elsewhere.
    Loading,
    /// A replica that lost its primary: elsewhere.
    MasterDown,
}

/// Whether an error can be a [`Redirect`], from its first bytes.
#[inline]
pub fn may_be_redirect(frame: &[u8]) -> bool {
    matches!(
        frame,
        [b'-', b'M', b'O' | b'A', ..]
            | [b'-', b'A', b'S', ..]
            | [b'-', b'T', b'R', ..]
            | [b'-', b'C', b'L', ..]
            | [b'-', b'L', b'O', ..]
    )
}

/// Reads an error reply; `None` if it is about something else.
pub fn parse(frame: &[u8]) -> Option<Redirect<'_>> {
    if !may_be_redirect(frame) {
        return None;
    }
    let end = frame.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(frame.len());
    let line = &frame[1..end];
    let code_end = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
    let (code, rest) = line.split_at(code_end);
    match code {
        b"MOVED" => place(rest).map(|(slot, host, port)| Redirect::Moved { slot, host, port }),
        b"ASK" => place(rest).map(|(slot, host, port)| Redirect::Ask { slot, host, port }),
        b"TRYAGAIN" => Some(Redirect::TryAgain),
        b"CLUSTERDOWN" => Some(Redirect::ClusterDown),
        b"LOADING" => Some(Redirect::Loading),
        b"MASTERDOWN" => Some(Redirect::MasterDown),
        _ => None,
    }
}

/// Reads ` 3999 host:port`; the host may hold colons itself.
fn place(text: &[u8]) -> Option<(u16, &str, u16)> {
    let text = std::str::from_utf8(text).ok()?;
    let (slot, address) = text.strip_prefix(' ')?.split_once(' ')?;
    let slot = slot.parse().ok().filter(|slot| usize::from(*slot) < crate::slot::COUNT)?;
    // No server says more behind the address; one that did would be understood.
    let address = address.split(' ').next()?;
    let (host, port) = address.rsplit_once(':')?;
    let host = match host {
        "?" => "",
        host => host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host),
    };
    Some((slot, host, port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_kind() {
        let moved = |slot, host, port| Some(Redirect::Moved { slot, host, port });
        for (frame, expected) in [
            (&b"-MOVED 3999 127.0.0.1:6381\r\n"[..], moved(3999, "127.0.0.1", 6381)),
            (b"-MOVED 15495 :17923\r\n", moved(15495, "", 17923)),
            (b"-MOVED 15495 ?:17923\r\n", moved(15495, "", 17923)),
            (b"-MOVED 1 ::1:7000\r\n", moved(1, "::1", 7000)),
            (b"-MOVED 1 [::1]:7000\r\n", moved(1, "::1", 7000)),
            (b"-MOVED 1 node-a.example:7000\r\n", moved(1, "node-a.example", 7000)),
            (b"-ASK 2 h:1\r\n", Some(Redirect::Ask { slot: 2, host: "h", port: 1 })),
            (
                b"-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
                Some(Redirect::TryAgain),
            ),
            (b"-CLUSTERDOWN Hash slot not served\r\n", Some(Redirect::ClusterDown)),
            (b"-CLUSTERDOWN The cluster is down\r\n", Some(Redirect::ClusterDown)),
            (b"-LOADING Redis is loading the dataset in memory\r\n", Some(Redirect::Loading)),
            (
                b"-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.\r\n",
                Some(Redirect::MasterDown),
            ),
            (b"-MOVED 16384 h:1\r\n", None),
            (b"-MOVED 1 h:65536\r\n", None),
            (b"-MOVED 1 h\r\n", None),
            (b"-MOVED\r\n", None),
            (b"-MOVEDX 1 h:1\r\n", None),
            (b"-ASKING h:1\r\n", None),
            (b"-ERR MOVED 1 h:1\r\n", None),
            (b"+MOVED 1 h:1\r\n", None),
            (b"-CROSSSLOT Keys in request don't hash to the same slot\r\n", None),
            (b"-", None),
            (b"", None),
        ] {
            assert_eq!(parse(frame), expected, "{}", frame.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(slot in 0u16..16384, host in "[a-z0-9.:-]{0,20}", port: u16) {
            let frame = format!("-MOVED {slot} {host}:{port}\r\n");
            let expected = Redirect::Moved { slot, host: &host, port };
            prop_assert_eq!(parse(frame.as_bytes()), Some(expected));
        }

        #[test]
        fn any_bytes_are_survived(
            code in prop::sample::select(vec!["-MOVED ", "-ASK ", "-TRYAGAIN", "-", ""]),
            bytes: Vec<u8>,
        ) {
            let frame = [code.as_bytes(), &bytes].concat();
            if parse(&frame).is_some() {
                prop_assert!(may_be_redirect(&frame));
            }
        }
    }
}
