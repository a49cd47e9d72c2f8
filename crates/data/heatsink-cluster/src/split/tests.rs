use std::collections::BTreeMap;

use heatsink_resp::command::CommandTable;
use heatsink_resp::value::Value;
use proptest::prelude::*;

use super::*;
use crate::join::{self, Join};

fn pieces(request: &str) -> Option<Vec<Piece>> {
    let args: Vec<&[u8]> = request.split(' ').map(str::as_bytes).collect();
    by_slot(CommandTable::default().lookup(args[0], None).unwrap(), &args)
}

fn words(bytes: &[u8]) -> Vec<String> {
    let request = Value::decode(bytes).unwrap();
    let word = |arg: &Value| String::from_utf8(arg.text().unwrap().to_vec()).unwrap();
    request.array().iter().map(word).collect()
}

#[test]
fn values_stay_with_their_keys() {
    let pieces = pieces("mset a 1 b 2 {a}x 3 a 4").unwrap();
    let slots: Vec<u16> = pieces.iter().map(|piece| piece.slot).collect();
    assert_eq!(slots, [15495, 3300]);
    assert_eq!(words(&pieces[0].bytes).join(" "), "mset a 1 {a}x 3 a 4");
    assert_eq!(words(&pieces[1].bytes).join(" "), "mset b 2");
    assert_eq!(pieces[0].keys, [0, 2, 3]);
    assert_eq!(pieces[1].keys, [1]);
}

#[test]
fn what_cannot_be_taken_apart() {
    for request in ["MSETNX a 1 b 2", "MSET a 1 b", "MSET", "MGET", "DEL", "GET a", "RENAME a b"] {
        assert_eq!(pieces(request), None, "{request}");
    }
    for request in ["MGET a b", "MSET a 1 b 2", "DEL a b", "UNLINK a b", "EXISTS a b", "TOUCH a b"]
    {
        assert_eq!(pieces(request).unwrap().len(), 2, "{request}");
    }
}

#[test]
fn what_follows_the_keys_is_in_every_piece() {
    // As a server with the JSON module describes JSON.MGET.
    let mut table = CommandTable::default();
    let reply =
        b"*1\r\n*8\r\n$9\r\njson.mget\r\n:-3\r\n*1\r\n+readonly\r\n:1\r\n:-2\r\n:1\r\n*0\r\n\
        *1\r\n+request_policy:multi_shard\r\n";
    assert_eq!(table.learn(&Value::decode(reply).unwrap()), 1);
    let args = [&b"JSON.MGET"[..], b"a", b"b", b"$.x"];
    let pieces = by_slot(table.lookup(args[0], None).unwrap(), &args).unwrap();
    assert_eq!(words(&pieces[0].bytes).join(" "), "JSON.MGET a $.x");
    assert_eq!(words(&pieces[1].bytes).join(" "), "JSON.MGET b $.x");
}

/// What one node holds, as far as the commands that are taken apart can tell.
#[derive(Default)]
struct Node(BTreeMap<String, String>);

impl Node {
    fn run(&mut self, bytes: &[u8]) -> Vec<u8> {
        let request = words(bytes);
        let args = &request[1..];
        let count = |count: usize| format!(":{count}\r\n").into_bytes();
        match &*request[0] {
            "MGET" => {
                let mut out = Vec::new();
                encode::header(&mut out, b'*', args.len());
                for key in args {
                    match self.0.get(key) {
                        Some(value) => encode::bulk(&mut out, value.as_bytes()),
                        None => out.extend_from_slice(b"$-1\r\n"),
                    }
                }
                out
            }
            "MSET" => {
                for pair in args.chunks_exact(2) {
                    self.0.insert(pair[0].clone(), pair[1].clone());
                }
                b"+OK\r\n".to_vec()
            }
            "EXISTS" => count(args.iter().filter(|key| self.0.contains_key(*key)).count()),
            "DEL" => count(args.iter().filter(|key| self.0.remove(*key).is_some()).count()),
            other => panic!("{other}"),
        }
    }
}

fn any_request() -> impl Strategy<Value = Vec<String>> {
    let key = || prop::sample::select(vec!["a", "b", "c", "d", "{a}e", "{b}f", "", "{}"]);
    let keys = (
        prop::sample::select(vec!["MGET", "EXISTS", "DEL"]),
        prop::collection::vec(key().prop_map(str::to_owned), 1..8),
    );
    let pairs = prop::collection::vec((key(), "[a-z]{0,4}"), 1..6);
    prop_oneof![
        keys.prop_map(|(name, keys)| [vec![name.to_owned()], keys].concat()),
        pairs.prop_map(|pairs| {
            let pairs = pairs.into_iter().flat_map(|(key, value)| [key.to_owned(), value]);
            std::iter::once("MSET".to_owned()).chain(pairs).collect()
        }),
    ]
}

proptest! {
    /// Many nodes, asked in pieces, answer as one that has all keys.
    #[test]
    fn split_and_joined_is_as_if_whole(
        requests in prop::collection::vec(any_request(), 1..20),
        node_count in 1usize..5,
    ) {
        let table = CommandTable::default();
        let mut one = Node::default();
        let mut many: Vec<Node> = (0..node_count).map(|_| Node::default()).collect();
        for request in requests {
            let args: Vec<&[u8]> = request.iter().map(String::as_bytes).collect();
            let mut whole = Vec::new();
            encode::command(&mut whole, &args);
            let command = table.lookup(args[0], None).unwrap();
            let pieces = by_slot(command, &args).unwrap();
            let replies: Vec<Vec<u8>> = pieces
                .iter()
                .map(|piece| many[usize::from(piece.slot) % node_count].run(&piece.bytes))
                .collect();
            let joined = join::join(&Join::for_pieces(command, &pieces), &replies);
            prop_assert_eq!(joined, one.run(&whole), "{:?}", request);
        }
    }

    #[test]
    fn every_key_is_in_one_piece(keys in prop::collection::vec("[ab{}]{0,4}", 1..30)) {
        let table = CommandTable::default();
        let args: Vec<&[u8]> =
            std::iter::once("DEL").chain(keys.iter().map(String::as_str)).map(str::as_bytes).collect();
        let pieces = by_slot(table.lookup(b"DEL", None).unwrap(), &args).unwrap();
        let mut seen = vec![0; keys.len()];
        let mut slots = Vec::new();
        for piece in &pieces {
            prop_assert!(piece.keys.is_sorted());
            for (word, ordinal) in words(&piece.bytes)[1..].iter().zip(&piece.keys) {
                prop_assert_eq!(word, &keys[*ordinal as usize]);
                prop_assert_eq!(slot::of_key(word.as_bytes()), piece.slot);
                seen[*ordinal as usize] += 1;
            }
            prop_assert!(!slots.contains(&piece.slot));
            slots.push(piece.slot);
        }
        prop_assert!(seen.iter().all(|count| *count == 1));
    }
}
