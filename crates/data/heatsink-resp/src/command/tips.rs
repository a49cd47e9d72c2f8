//! Where a command goes in a cluster and how its replies become one, as a server's command
//! tips have it.
//!
//! Called by: the command table, for its own lines and for a server's `COMMAND` reply.

/// To which nodes of a cluster a command is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestPolicy {
    /// To the node that its keys say; to any node if it has none.
    #[default]
    Default,
    /// To every node, replicas included.
    AllNodes,
    /// To every primary.
    AllShards,
    /// To the nodes of its keys, each with its own part of the arguments.
    MultiShard,
    /// As only someone who knows the command can tell (`SCAN`).
    Special,
}

/// How the replies of several nodes become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResponsePolicy {
    /// In the order of the keys; without keys, the elements of all in any order.
    #[default]
    Default,
    /// The first that is no error.
    OneSucceeded,
    /// Any of them if none is an error.
    AllSucceeded,
    /// The logical AND of numbers that are 0 or 1, or of each place of their arrays.
    LogicalAnd,
    /// The logical OR, likewise.
    LogicalOr,
    /// The smallest number.
    Min,
    /// The largest number.
    Max,
    /// The sum of the numbers.
    Sum,
    /// As only someone who knows the command can tell (`INFO`).
    Special,
}

/// Both policies of a command.
#[derive(Clone, Copy, Default)]
pub(super) struct Tips {
    pub(super) request: RequestPolicy,
    pub(super) response: ResponsePolicy,
}

impl Tips {
    /// Reads the notation of `builtin.txt`, without its exclamation mark.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (request, response) = text.split_once(':').unwrap_or((text, ""));
        Some(Self {
            request: match request {
                "nodes" => RequestPolicy::AllNodes,
                "shards" => RequestPolicy::AllShards,
                "keys" => RequestPolicy::MultiShard,
                "special" => RequestPolicy::Special,
                _ => return None,
            },
            response: match response {
                "" => ResponsePolicy::Default,
                "one" => ResponsePolicy::OneSucceeded,
                "all" => ResponsePolicy::AllSucceeded,
                "and" => ResponsePolicy::LogicalAnd,
                "or" => ResponsePolicy::LogicalOr,
                "min" => ResponsePolicy::Min,
                "max" => ResponsePolicy::Max,
                "sum" => ResponsePolicy::Sum,
                "special" => ResponsePolicy::Special,
                _ => return None,
            },
        })
    }

    /// Takes over one tip of a server; those that are about something else change nothing.
    pub(super) fn learn(&mut self, tip: &[u8]) {
        match tip {
            b"request_policy:all_nodes" => self.request = RequestPolicy::AllNodes,
            b"request_policy:all_shards" => self.request = RequestPolicy::AllShards,
            b"request_policy:multi_shard" => self.request = RequestPolicy::MultiShard,
            b"request_policy:special" => self.request = RequestPolicy::Special,
            b"response_policy:one_succeeded" => self.response = ResponsePolicy::OneSucceeded,
            b"response_policy:all_succeeded" => self.response = ResponsePolicy::AllSucceeded,
            b"response_policy:agg_logical_and" => self.response = ResponsePolicy::LogicalAnd,
            b"response_policy:agg_logical_or" => self.response = ResponsePolicy::LogicalOr,
            b"response_policy:agg_min" => self.response = ResponsePolicy::Min,
            b"response_policy:agg_max" => self.response = ResponsePolicy::Max,
            b"response_policy:agg_sum" => self.response = ResponsePolicy::Sum,
            b"response_policy:special" => self.response = ResponsePolicy::Special,
            _ => {}
        }
    }
}
