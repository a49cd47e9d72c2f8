//! A slot that is half moved, for tests of what is tried again.

use std::time::Duration;

use heatsink_testkit::{RawClient, RedisCluster, Reply, encode, key_slot};

/// Long enough for what is wrong to happen.
pub(crate) const MOMENT: Duration = Duration::from_millis(100);
/// What servers say of keys on both sides.
pub(crate) const HALF_MOVED: &str = "TRYAGAIN Multiple keys request during rehashing of slot";

/// A slot that is moving, with a key on each side.
pub(crate) struct Half {
    cluster: &'static RedisCluster,
    pub(crate) slot: u16,
    pub(crate) to: usize,
    pub(crate) stayed: String,
    pub(crate) moved: String,
    pub(crate) tag: String,
}

impl Half {
    pub(crate) fn begin(cluster: &'static RedisCluster, name: &str) -> Self {
        let tag = cluster.key_on(0, name);
        let (slot, to) = (key_slot(&tag), 1);
        let keys = [format!("{tag}0"), format!("{tag}1")];
        let mut source = cluster.node(0).client();
        for key in &keys {
            assert_eq!(source.command(&["SET", key, "0"]), Reply::ok());
        }
        cluster.begin_move_slot(slot, to);
        cluster.migrate_some_keys(slot, to, 1);
        let [a, b] = keys;
        let a_stayed = source.command(&["GET", &a]) == Reply::bulk("0");
        let (stayed, moved) = if a_stayed { (a, b) } else { (b, a) };
        assert_eq!(source.command(&["GET", &stayed]), Reply::bulk("0"));
        assert!(source.command(&["GET", &moved]).is_error());
        Self { cluster, slot, to, stayed, moved, tag }
    }

    pub(crate) fn finish(&self) {
        self.cluster.migrate_keys(self.slot, self.to);
        self.cluster.finish_move_slot(self.slot, self.to);
    }

    pub(crate) fn read_both(&self) -> Vec<u8> {
        encode(&["MGET", &self.stayed, &self.moved])
    }

    pub(crate) fn write_both(&self, value: &str) -> Vec<u8> {
        encode(&["MSET", &self.stayed, value, &self.moved, value])
    }
}

/// Nothing comes for a moment.
#[track_caller]
pub(crate) fn says_nothing(client: &mut RawClient) {
    let early = client.try_read_frame(MOMENT).expect("open");
    assert!(early.is_none(), "{}", early.unwrap_or_default().escape_ascii());
}
