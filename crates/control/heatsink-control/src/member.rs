//! The processes of the fleet, as their heartbeats tell.
//!
//! Called by: the runtime, which hands the live ones to aggregator and agent.

/// A live process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// Its name, which differs from that of every other live one.
    pub id: String,
    /// Whether it takes requests.
    pub proxy: bool,
    /// Whether it sums and decides.
    pub aggregator: bool,
}

/// How many of them take requests.
pub fn proxies(members: &[Member]) -> usize {
    members.iter().filter(|member| member.proxy).count()
}

/// How many of them sum and decide.
pub fn aggregators(members: &[Member]) -> usize {
    members.iter().filter(|member| member.aggregator).count()
}
