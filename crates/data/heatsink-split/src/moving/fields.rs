//! Fields of a hash that end by themselves (Redis 7.4, Valkey 9). A copy of a hash, field by field,
//! would lose when.

use heatsink_cluster::frame::Aggregate;
use heatsink_resp::encode;

use super::{Unfit, elements};

/// Fields that are asked about in one request.
const FIELDS: usize = 512;

/// Asks when each field ends of the hash whose reply to `HGETALL` this is.
pub fn ask_field_ttls(key: &[u8], whole: &[u8]) -> Result<Vec<Vec<u8>>, Unfit> {
    let elements = elements(whole)?;
    let fields: Vec<&[u8]> = elements.iter().copied().step_by(2).collect();
    let ask = |fields: &[&[u8]]| {
        let count = fields.len().to_string();
        let mut args = vec![&b"HPEXPIRETIME"[..], key, b"FIELDS", count.as_bytes()];
        args.extend(fields);
        let mut request = Vec::new();
        encode::command(&mut request, &args);
        request
    };
    Ok(fields.chunks(FIELDS).map(ask).collect())
}

/// Whether a reply to one of these says that a field ends. A server that does not know the command
/// has no such fields.
pub fn tells_of_field_ttl(reply: &[u8]) -> Result<bool, Unfit> {
    if reply.starts_with(b"-ERR unknown command") {
        return Ok(false);
    }
    let strange = || Unfit(format!("the server answered {}", super::shown(reply)));
    let array = Aggregate::parse(reply).ok_or_else(strange)?;
    // -1: it does not end; -2: it has gone meanwhile.
    Ok(array.elements().any(|element| !element.starts_with(b":-")))
}

#[cfg(test)]
mod tests {
    use heatsink_testkit::encode;

    use super::*;

    #[test]
    fn every_field_is_asked_about_once() {
        let pairs: Vec<String> = (0..1200).map(|number| number.to_string()).collect();
        let requests = ask_field_ttls(b"k", &encode(&pairs)).expect("a hash");
        assert_eq!(requests.len(), 2);
        assert!(requests[0].starts_with(b"*516\r\n$12\r\nHPEXPIRETIME\r\n$1\r\nk\r\n$6\r\nFIELDS"));
        assert!(requests[1].starts_with(b"*92\r\n"));
        let one = ask_field_ttls(b"k", &encode(&["f", "v"])).expect("a hash");
        assert_eq!(one, [encode(&["HPEXPIRETIME", "k", "FIELDS", "1", "f"])]);
    }

    #[test]
    fn a_field_that_ends_is_told_from_those_that_do_not() {
        assert_eq!(tells_of_field_ttl(b"*3\r\n:-1\r\n:-2\r\n:-1\r\n"), Ok(false));
        assert_eq!(tells_of_field_ttl(b"*2\r\n:-1\r\n:1755000000000\r\n"), Ok(true));
        let unknown = b"-ERR unknown command 'HPEXPIRETIME', with args beginning with: 'k'\r\n";
        assert_eq!(tells_of_field_ttl(unknown), Ok(false));
        // Nobody knows: better not.
        assert!(tells_of_field_ttl(b"-NOPERM no\r\n").is_err());
    }
}
