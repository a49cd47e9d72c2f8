//! Whether replicas have what was written.
//!
//! Called by: whoever has moved a value, before others rely on it or what is needed to go back is
//! dropped.
//! Bound: [`PATIENCE`]; then it is said what is missing, and the caller goes back or tries again.
//! Invariant: servers are asked in transactions that name a key of theirs. `master_replid` changes
//! with a failover, so offsets of two histories are never compared.
//!
//! A replica that was behind, and becomes the primary, takes back what it had not got. Two commits must
//! not be taken back while others rely on them:
//!
//! ```text
//! mover                              proxies                     key's node
//! EXEC: marker for value                                         its replica is behind
//! registry: split
//!                                    SADD shard x: 1
//!                                                                fails over: the value is back
//!                                    no marker: shards dropped, and x with them
//! ```
//!
//! So a split is told of only when the replicas have its commit, and undone if they have not in time.
//! Writes are held meanwhile.
//!
//! ```text
//! mover                              key's node
//! EXEC: value for marker             its replica is down
//! drops the sealed shards, and the split from the index
//!                                    fails over: the marker is back, and no value anywhere
//! ```
//!
//! So sealed shards are dropped only when the replicas have the commit of the end. If the marker comes
//! back before that, the value is made whole again from them.
//!
//! ```text
//! mover                              a shard's node
//! seals, drops the shard             its replica is behind
//! drops the split from the index
//!                                    fails over: the shard is back, and nobody knows whose it is
//! ```
//!
//! So a split leaves the index only when the replicas of its shards have what was done to them.

use std::time::{Duration, Instant};

use heatsink_resp::value::Value;

use super::data::{Data, DataError, command};
use super::servers::{field, info, is_not_allowed};
use super::steps::Steps;

/// How long replicas are waited for.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long a primary is left to hear from its replicas before it is asked again, in milliseconds.
const HEAR_MS: &[u8] = b"20";

/// Why a server is not written to for a split.
const DESERTED: &str = "its server has replicas, and none of them is connected";

/// How far a primary and its replicas are.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Replication {
    history: String,
    offset: u64,
    /// What each replica that is connected has confirmed.
    confirmed: Vec<u64>,
    /// Others are known to belong here, and none is connected.
    is_deserted: bool,
}

impl Replication {
    fn read(text: &str) -> Result<Self, DataError> {
        if field(text, "role") == Some("slave") {
            return Err(DataError::Refused("a replica was asked".to_owned()));
        }
        let offset = field(text, "master_repl_offset").and_then(|offset| offset.parse().ok());
        let replica = |line: &str| {
            let (name, values) = line.trim_end().split_once(':')?;
            let number = name.strip_prefix("slave")?;
            number.parse::<u32>().ok()?;
            let value = |name: &str| {
                let pairs = values.split(',').filter_map(|pair| pair.split_once('='));
                pairs.filter(|(of, _)| *of == name).map(|(_, value)| value).next()
            };
            (value("state") == Some("online")).then(|| value("offset")?.parse().ok()).flatten()
        };
        Ok(Self {
            history: field(text, "master_replid").unwrap_or_default().to_owned(),
            offset: offset.unwrap_or(0),
            confirmed: text.lines().filter_map(replica).collect(),
            is_deserted: false,
        })
    }

    /// Whether all replicas that are connected have what the primary had then.
    fn has_all_of(&self, then: &Self) -> bool {
        !self.is_deserted && self.confirmed.iter().all(|offset| *offset >= then.offset)
    }
}

impl Steps {
    /// Waits until the replicas have what the servers of these names have now. Says why not, if they
    /// do not have it in time.
    pub(crate) async fn unreplicated(&self, names: &[&[u8]]) -> Result<Option<String>, DataError> {
        match self.wait_for_replicas(names).await {
            // A user that may not ask has not been able to split anything; what others have split must
            // come to an end nevertheless.
            Err(error) if is_not_allowed(&error) => Ok(None),
            waited => waited,
        }
    }

    /// Why nothing may be written for a split at the servers of these names: no replica would ever
    /// confirm it, nor that it was removed.
    pub(crate) async fn deserted(&self, names: &[&[u8]]) -> Result<Option<String>, DataError> {
        let look = async {
            let mut data = self.connect()?;
            for name in self.one_a_server(names) {
                if self.replication(&mut data, name).await?.is_deserted {
                    return Ok(Some(DESERTED.to_owned()));
                }
            }
            Ok(None)
        };
        match look.await {
            Err(error) if is_not_allowed(&error) => Ok(None),
            looked => looked,
        }
    }

    async fn wait_for_replicas(&self, names: &[&[u8]]) -> Result<Option<String>, DataError> {
        let mut data = self.connect()?;
        let mut behind = Vec::new();
        for name in self.one_a_server(names) {
            let then = self.replication(&mut data, name).await?;
            if !then.has_all_of(&then) {
                behind.push((name, then));
            }
        }
        let end = Instant::now() + PATIENCE;
        while let Some((name, then)) = behind.last() {
            if then.is_deserted {
                return Ok(Some(DESERTED.to_owned()));
            }
            if Instant::now() >= end {
                return Ok(Some("a replica does not confirm what was written".to_owned()));
            }
            // Has every primary ask its replicas; of themselves they tell once a second. That it
            // waits for more of them than there are is only to have it ask.
            self.connect()?.ask(&[command(&[b"WAIT", b"1000", HEAR_MS])]).await?;
            let now = self.replication(&mut data, name).await?;
            if now.history != then.history {
                return Err(DataError::Refused("its server has failed over".to_owned()));
            }
            if now.has_all_of(then) {
                behind.pop();
            }
        }
        Ok(None)
    }

    async fn replication(&self, data: &mut Data, name: &[u8]) -> Result<Replication, DataError> {
        let told = info(data, name, &[b"replication"]).await?;
        let mut replication = Replication::read(&told[0])?;
        if replication.confirmed.is_empty() && self.is_cluster() {
            replication.is_deserted = self.knows_replicas(data, name).await?;
        }
        Ok(replication)
    }

    /// Whether a cluster knows replicas of the node that has this name, connected or not.
    async fn knows_replicas(&self, data: &mut Data, name: &[u8]) -> Result<bool, DataError> {
        let at_node = async |data: &mut Data, question: Vec<u8>| {
            let told = data.transaction(&[command(&[b"EXISTS", name]), question]).await?;
            let told = told.and_then(|mut told| told.pop());
            told.ok_or_else(|| DataError::Lost("no reply to EXEC".to_owned()))
        };
        let id = at_node(data, command(&[b"CLUSTER", b"MYID"])).await?;
        let id = id.text().unwrap_or_default();
        let replicas = at_node(data, command(&[b"CLUSTER", b"REPLICAS", id])).await?;
        Ok(replicas.array().iter().filter_map(Value::text).any(|line| !line.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(replicas: &str) -> Replication {
        let text = format!(
            "# Replication\r\nrole:master\r\nconnected_slaves:2\r\n{replicas}\
             master_replid:8371\r\nmaster_repl_offset:1000\r\nslave_expires_tracked_keys:0\r\n"
        );
        Replication::read(&text).expect("a primary")
    }

    #[test]
    fn what_a_primary_says_of_its_replicas() {
        let both = told(
            "slave0:ip=127.0.0.1,port=7001,state=online,offset=990,lag=0\r\n\
             slave1:ip=127.0.0.1,port=7002,state=online,offset=1000,lag=1\r\n\
             slave2:ip=127.0.0.1,port=7003,state=wait_bgsave,offset=0,lag=0\r\n",
        );
        assert_eq!((both.offset, &both.confirmed[..]), (1000, &[990, 1000][..]));
        assert_eq!(both.history, "8371");
        assert!(!both.has_all_of(&both), "one is behind");
        let then = Replication { offset: 990, ..both.clone() };
        assert!(both.has_all_of(&then), "both have what there was then");
        let none = told("");
        assert!(none.has_all_of(&none), "nobody is behind");
        let deserted = Replication { is_deserted: true, ..none };
        assert!(!deserted.has_all_of(&deserted));
        assert!(Replication::read("role:slave\r\n").is_err());
    }
}
