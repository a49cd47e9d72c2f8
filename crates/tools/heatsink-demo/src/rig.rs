//! What runs: the cluster, the proxies before it, and their part in the fleet.
//!
//! Called by: `director`.
//! Bound: three threads for the nodes; two for each proxy and one for its control plane.
//! Invariant: proxies end before the cluster does.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use heatsink_admin::HotKeyView;
use heatsink_admin::client::Client as AdminClient;
use heatsink_control::policy::{Mode, Policies};
use heatsink_control::settings::Settings as ControlSettings;
use heatsink_coordination::{Settings as StoreSettings, Store};
use heatsink_detect::config::Settings as DetectSettings;
use heatsink_embedded::{Cluster, Pace};
use heatsink_fleet::{DataPlane, Fleet, Role};
use heatsink_proxy::config::{Config, Target, Upstream};
use heatsink_proxy::{Handle, Proxy};

use crate::options::{NODES, Options, PROXIES};

/// What a reply of a node takes at least, as in the network of a data centre.
const LATENCY: Duration = Duration::from_micros(500);
/// How long a key that is no longer hot is still treated.
const HOLD_SECONDS: u32 = 5;
const ADMIN_PATIENCE: Duration = Duration::from_millis(500);
const SHUTDOWN_BOUND: Duration = Duration::from_millis(500);

/// A proxy and its part in the fleet.
struct Member {
    proxy: Proxy,
    handle: Handle,
    fleet: Fleet,
}

/// All that runs.
pub(crate) struct Rig {
    members: Vec<Member>,
    live: heatsink_fleet::Live,
    admin: AdminClient,
    page: String,
    /// The store that the proxies stand before, unless it is elsewhere.
    cluster: Option<Cluster>,
}

impl Rig {
    /// Starts everything. Heatsink observes.
    pub(crate) fn start(options: &Options) -> io::Result<Self> {
        let (cluster, upstream) = upstream(options)?;
        let detect = DetectSettings {
            hot_threshold: options.hot_threshold(),
            report_threshold: options.hot_threshold(),
            hold_seconds: HOLD_SECONDS,
            ..DetectSettings::default()
        };
        let control = ControlSettings { detect: detect.clone(), ..ControlSettings::default() };
        let live = heatsink_fleet::Live {
            control,
            policies: policies(Mode::Observe),
            ..heatsink_fleet::Live::default()
        };
        let settings = StoreSettings::new("demo").map_err(other)?;
        let store = Store::memory(settings);
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut members = Vec::with_capacity(PROXIES);
        for number in 0..PROXIES {
            let mut config = Config::new(anywhere, upstream.clone());
            config.detect = Some(detect.clone());
            let admin = if number == 0 { options.admin } else { anywhere };
            members.push(Member::start(config, &live, &store, admin)?);
        }
        let address = members[0].fleet.admin_addr().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let page = format!("http://{address}/");
        let admin = AdminClient::new(&page, None).map_err(other)?.with_timeout(ADMIN_PATIENCE);
        Ok(Self { members, live, admin, page, cluster })
    }

    /// Where the page is.
    pub(crate) fn page(&self) -> &str {
        &self.page
    }

    /// Where clients connect.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.members.iter().map(|member| member.proxy.local_addr()).collect()
    }

    /// Lets Heatsink act, or only observe, from now on; as a reload of `mode` does.
    pub(crate) fn set_mitigation(&mut self, acts: bool) {
        self.live.policies = policies(if acts { Mode::Coherent } else { Mode::Observe });
        for member in &self.members {
            member.fleet.reload(self.live.clone());
        }
    }

    /// Requests that each node got so far, in the order of their slots: as the embedded nodes
    /// count them, else as the proxies do, who tell about once a second.
    pub(crate) fn node_totals(&self) -> Vec<(String, u64)> {
        if let Some(cluster) = &self.cluster {
            let nodes = cluster.addresses().iter().zip(cluster.nodes());
            return nodes.map(|(name, node)| (name.to_string(), node.requests_total())).collect();
        }
        let mut totals: Vec<(String, u64)> = Vec::new();
        for member in &self.members {
            for node in member.handle.upstream_load().primaries {
                match totals.iter_mut().find(|(name, _)| *name == node.endpoint) {
                    Some((_, total)) => *total += node.requests_total,
                    None => totals.push((node.endpoint, node.requests_total)),
                }
            }
        }
        totals
    }

    /// The hot keys, as the admin API tells them; `None` if it does not answer.
    pub(crate) fn hot_keys(&self) -> Option<Vec<HotKeyView>> {
        self.admin.list(&[]).ok()
    }

    /// Ends everything, the proxies first.
    pub(crate) fn stop(self) {
        for member in self.members {
            member.proxy.shutdown(SHUTDOWN_BOUND);
            member.fleet.shutdown();
        }
    }
}

impl Member {
    fn start(
        config: Config,
        live: &heatsink_fleet::Live,
        store: &Store,
        admin: SocketAddr,
    ) -> io::Result<Self> {
        let mut proxy = Proxy::start(config)?;
        let handle = proxy.handle();
        let settings = heatsink_fleet::Settings {
            role: Role::All,
            address: Some(proxy.local_addr()),
            store_is_upstream: false,
            live: live.clone(),
            admin: Some((TcpListener::bind(admin)?, heatsink_admin::Settings::default())),
            log_lines_dropped: None,
        };
        let data_plane =
            proxy.take_detector().map(|detector| DataPlane { detector, proxy: handle.clone() });
        let fleet = Fleet::start(settings, store.clone(), data_plane)?;
        Ok(Self { proxy, handle, fleet })
    }
}

fn upstream(options: &Options) -> io::Result<(Option<Cluster>, Upstream)> {
    if let Some((url, tls)) = &options.upstream {
        let upstream = Upstream::from_url(url.clone(), tls.clone()).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "embedded:// is the default")
        })?;
        return Ok((None, upstream));
    }
    let capacity_per_second = Some(options.capacity_per_second);
    let cluster = Cluster::start(NODES, Pace { capacity_per_second, latency: LATENCY })?;
    let seed = |address: &SocketAddr| (address.ip().to_string(), address.port());
    let seeds = cluster.addresses().iter().map(seed).collect();
    Ok((Some(cluster), Upstream::new(Target::Cluster(seeds))))
}

fn policies(mode: Mode) -> Arc<Policies> {
    Arc::new(Policies::default().with_last_resort(mode))
}

fn other(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::other(error)
}
