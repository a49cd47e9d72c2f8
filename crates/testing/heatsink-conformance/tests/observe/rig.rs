//! A Heatsink that names every key it sees and forgets none of them during a test.

use std::collections::BTreeMap;
use std::time::Duration;

use heatsink_conformance::{ClusterRig, Heatsink, Rig};
use heatsink_detect::config::Settings;
use heatsink_detect::heat::KeyHeat;
use heatsink_detect::report::Report;
use heatsink_proxy::Detector;
use heatsink_proxy::config::Config;
use heatsink_testkit::{RawClient, RedisCluster, RedisServer, eventually};

pub(crate) const SOON: Duration = Duration::from_secs(10);
/// Longer than what a test does between two looks.
pub(crate) const WINDOW_S: u32 = 8;

/// At this threshold, eight a window, an eighth of it names a key with its first request.
pub(crate) fn settings() -> Settings {
    Settings {
        window_ms: WINDOW_S * 1000,
        tick_ms: 50,
        hot_threshold: 1,
        report_threshold: 1,
        ..Settings::default()
    }
}

/// A Heatsink whose counts can be looked at, before one server or before a cluster.
pub(crate) struct Counted {
    detector: Detector,
    behind: Behind,
}

enum Behind {
    Server(Rig),
    Cluster(ClusterRig),
}

impl Counted {
    pub(crate) fn before_server(adjust: impl FnOnce(&mut Config)) -> Self {
        Self::with(&settings(), adjust)
    }

    pub(crate) fn with(settings: &Settings, adjust: impl FnOnce(&mut Config)) -> Self {
        let mut rig = Rig::with(RedisServer::builder(), |config| {
            config.detect = Some(settings.clone());
            adjust(config);
        });
        let detector = rig.heatsink_mut().take_detector().expect("it counts");
        Self { detector, behind: Behind::Server(rig) }
    }

    pub(crate) fn before_cluster() -> Self {
        let settings = RedisCluster::builder().replicas_per_primary(0);
        let mut rig = ClusterRig::with(settings, |config| config.detect = Some(self::settings()));
        let detector = rig.heatsink.take_detector().expect("it counts");
        Self { detector, behind: Behind::Cluster(rig) }
    }

    pub(crate) fn server(&mut self) -> &mut RedisServer {
        match &mut self.behind {
            Behind::Server(rig) => rig.server_mut(),
            Behind::Cluster(_) => panic!("a cluster is behind"),
        }
    }

    pub(crate) fn heatsink(&self) -> &Heatsink {
        match &self.behind {
            Behind::Server(rig) => rig.heatsink(),
            Behind::Cluster(rig) => &rig.heatsink,
        }
    }

    pub(crate) fn client(&self) -> RawClient {
        self.heatsink().client()
    }

    /// Waits until exactly so many keys were counted in all, and says how often each was, read
    /// and written. More than that fails; it looks twice to see that nothing follows.
    #[track_caller]
    pub(crate) fn counts(&mut self, total: u64) -> BTreeMap<String, (u64, u64)> {
        let whole = |rate: f64| (rate * f64::from(WINDOW_S)).round() as u64;
        let mut report = self.detector.tick();
        eventually(SOON, || {
            report = self.detector.tick();
            whole(report.reads_per_second + report.writes_per_second) >= total
        });
        std::thread::sleep(self.detector.tick_length() * 3);
        report = self.detector.tick();
        let counted = whole(report.reads_per_second + report.writes_per_second);
        assert_eq!(counted, total, "{report:?}");
        let entry = |heat: &KeyHeat| {
            let name = String::from_utf8_lossy(&heat.key).into_owned();
            (name, (whole(heat.reads_per_second), whole(heat.writes_per_second)))
        };
        report.keys.iter().map(entry).collect()
    }

    /// What is known now.
    pub(crate) fn report(&mut self) -> Report {
        self.detector.tick()
    }

    /// Waits until what is told with these keys asked for is as wanted.
    #[track_caller]
    pub(crate) fn until_asked(&mut self, keys: &[&str], wanted: impl Fn(&Report) -> bool) {
        eventually(SOON, || {
            wanted(&self.detector.tick_with(keys.iter().map(|key| key.as_bytes())))
        });
    }

    /// Waits until what is known of a key is as wanted.
    #[track_caller]
    pub(crate) fn until(&mut self, key: &str, wanted: impl Fn(&KeyHeat) -> bool) {
        let mut last = None;
        eventually(SOON, || {
            let report = self.detector.tick();
            last = report.keys.iter().find(|heat| heat.key == key.as_bytes()).cloned();
            last.as_ref().is_some_and(&wanted)
        });
    }
}
