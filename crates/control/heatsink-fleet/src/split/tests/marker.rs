//! Markers that others have changed or renamed.

use heatsink_split::{Kind, Layout};
use heatsink_testkit::Reply;

use super::Rig;
use crate::split::marker::Marker;
use crate::split::names::Manifest;
use crate::split::steps::Fate;
use crate::split::whole::Whole;

/// A value in shards, its marker, and a command that does not fit the value, but the marker.
async fn damaged(rig: &Rig, kind: Kind, command: &[&str]) -> Layout {
    damaged_as("19f2c1a77d0-5e884898", rig, kind, command).await
}

async fn damaged_as(id: &str, rig: &Rig, kind: Kind, command: &[&str]) -> Layout {
    let mut client = rig.client();
    if kind == Kind::Counter {
        client.command(&["SET", "k", "10"]);
    } else {
        client.command(&["SADD", "k", "a", "b", "c"]);
    }
    client.command(&["PEXPIREAT", "k", "4102444800123"]);
    let tags = rig.steps.new_tags(b"k", 4);
    let layout = Layout::new(id, kind, true, &tags);
    rig.enter("k", &layout).await;
    rig.split("k", &layout).await.expect("split");
    let reply = client.command(command);
    assert!(!reply.is_error(), "{reply:?}");
    layout
}

const DAMAGE: [(Kind, &[&str]); 6] = [
    (Kind::Counter, &["RPUSH", "k", "x"]),
    (Kind::Counter, &["LPOP", "k"]),
    (Kind::Counter, &["RPOP", "k"]),
    (Kind::Set, &["APPEND", "k", "x"]),
    (Kind::Set, &["SETRANGE", "k", "0", "x"]),
    (Kind::Set, &["SETRANGE", "k", "16", "x"]),
];

pub(super) async fn a_marker_that_was_changed_is_mended_once(rig: Rig) {
    let mut client = rig.client();
    for (kind, command) in DAMAGE {
        let layout = damaged(&rig, kind, command).await;
        let splits = [(b"k".to_vec(), layout.clone())];
        let seen = async || rig.steps.look(&splits).await.expect("asked")[0].0;
        assert_eq!(seen().await, Marker::Damaged, "{command:?}");
        let (one, two) = tokio::join!(rig.steps.mend(b"k", &layout), rig.steps.mend(b"k", &layout));
        // The slower one finds it mended, or sees that it is being written to.
        let mended = [&one, &two].iter().filter(|mended| ***mended == Ok(true)).count();
        assert_eq!(mended, 1, "{command:?}: {one:?} {two:?}");
        assert_eq!(seen().await, Marker::Intact, "{command:?}");
        assert_eq!(client.command(&["PEXPIRETIME", "k"]).integer(), 4_102_444_800_123);
        // What is not a marker of this split stays as it is.
        client.command(&["SET", "k", "mine"]);
        assert_eq!(rig.steps.mend(b"k", &layout).await, Ok(false));
        assert_eq!(client.command(&["GET", "k"]), Reply::bulk("mine"));
        client.command(&["FLUSHALL"]);
    }
}

pub(super) async fn a_changed_marker_is_as_good_as_any_when_a_value_is_made_whole(rig: Rig) {
    let mut client = rig.client();
    for (kind, command) in DAMAGE {
        let layout = damaged(&rig, kind, command).await;
        let (whole, _) =
            tokio::join!(rig.steps.unsplit(b"k", &layout), rig.steps.mend(b"k", &layout));
        let whole = match whole {
            // The mender was faster, between the look and the commit.
            Err(_) => rig.steps.unsplit(b"k", &layout).await,
            whole => whole,
        };
        assert_eq!(whole, Ok(Whole::Committed), "{command:?}");
        let read = if kind == Kind::Counter { ["GET", "k"] } else { ["SCARD", "k"] };
        let value = client.command(&read);
        assert!(value == Reply::bulk("10") || value == Reply::Integer(3), "{value:?}");
        assert_eq!(client.command(&["PEXPIRETIME", "k"]).integer(), 4_102_444_800_123);
        client.command(&["FLUSHALL"]);
    }
}

pub(super) async fn a_marker_that_was_renamed_is_found(rig: Rig) {
    let mut client = rig.client();
    for kind in [Kind::Counter, Kind::Set] {
        for number in 0..3000 {
            client.command(&["SET", &format!("{{k}}{number}"), "1"]);
        }
        let layout = damaged(&rig, kind, &["RENAME", "k", "{k}other"]).await;
        client.command(&["SET", "k", "another"]);
        let search = rig.steps.search(b"k", &layout).await.expect("asked");
        assert_eq!((search.at, search.gap), (vec![b"{k}other".to_vec()], None));
        let there = rig.steps.unsplit_at(b"k", b"{k}other", &layout).await;
        assert_eq!(there, Ok(Whole::Committed));
        assert_eq!(client.command(&["PEXPIRETIME", "{k}other"]).integer(), 4_102_444_800_123);
        let search = rig.steps.search(b"k", &layout).await.expect("asked");
        assert!(search.at.is_empty(), "tombstones are no markers: {:?}", search.at);
        client.command(&["FLUSHALL"]);
    }
}

/// Something of an earlier split of the key is left: it must not be taken for the value.
pub(super) async fn a_marker_without_an_id_is_that_of_the_latest_split(rig: Rig) {
    let mut client = rig.client();
    for (kind, command) in DAMAGE {
        let tags = rig.steps.new_tags(b"k", 4);
        let earlier = Layout::new("1-00000001", kind, true, &tags);
        let manifest = Manifest::new(b"k", &earlier, 1);
        rig.steps.enter(&earlier.id, &manifest).await.expect("entered");
        let later = damaged_as("2-00000002", &rig, kind, command).await;
        let again: &[&str] = match kind {
            Kind::Counter => &["RPOP", "k"],
            _ => &["SETRANGE", "k", "0", "HEATSINK:splix"],
        };
        for (round, changed) in [command, again].into_iter().enumerate() {
            if round > 0 {
                client.command(changed);
            }
            let at = format!("{command:?}, {changed:?}");
            assert_eq!(rig.steps.forbid(b"k", &earlier).await, Ok(Fate::Unmarked), "{at}");
            assert_eq!(rig.steps.unsplit(b"k", &earlier).await, Ok(Whole::NotOurs), "{at}");
            assert_eq!(rig.steps.mend(b"k", &earlier).await, Ok(false), "{at}");
            assert_eq!(rig.steps.forbid(b"k", &later).await, Ok(Fate::Committed), "{at}");
            assert_eq!(rig.steps.mend(b"k", &later).await, Ok(true), "{at}");
        }
        client.command(&["FLUSHALL"]);
    }
}
