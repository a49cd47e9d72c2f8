//! Values that are fine alone and wrong together, or wrong in this version.
//!
//! Called by: `validate`.
//! Invariant: a mistake is blamed on a key that somebody set, since a default cannot be
//! corrected.

use heatsink_control::policy::MAX_RULES;
use heatsink_upstream::address::Url;

use super::merge::{Setting, Settings};
use super::raw::{Mistake, Place};
use super::value::Value;

/// All of them.
pub(super) fn find(settings: &Settings) -> Vec<Mistake> {
    let mut found = Found { settings, mistakes: Vec::new() };
    found.role();
    found.rules();
    found.detect();
    found.auth();
    found.handover();
    found.tls();
    found.upstream_tls();
    found.policies();
    found.mistakes.sort();
    found.mistakes
}

struct Found<'a> {
    settings: &'a Settings,
    mistakes: Vec<Mistake>,
}

impl Found<'_> {
    fn refuse(&mut self, path: &str, text: &str) {
        let setting = self.settings.get(path);
        self.mistakes.push(Mistake::of(setting.key, setting.place.clone(), text));
    }

    fn is_given(&self, path: &str) -> bool {
        !matches!(self.settings.get(path).value, Value::Nothing | Value::Switch(false))
    }

    /// Two keys that are of use only together.
    fn pair(&mut self, one: &str, other: &str) {
        for (given, missing) in [(one, other), (other, one)] {
            if self.is_given(given) && !self.is_given(missing) {
                self.refuse(given, &format!("needs {missing} as well"));
            }
        }
    }

    fn role(&mut self) {
        let role = self.settings.text("role");
        if role != "all" && *self.settings.url("coordination.url") == Url::Embedded {
            let text = format!(
                "\"{role}\" needs a Redis in which to meet the others; set coordination.url (or upstream)"
            );
            self.refuse("role", &text);
        }
        if let Some(address) = self.settings.address("admin")
            && !address.ip().to_canonical().is_loopback()
            && !self.is_given("admin_token_file")
        {
            let text = "can be reached from other machines; set admin_token_file, or listen on \
                        127.0.0.1";
            self.refuse("admin", text);
        }
    }

    fn rules(&mut self) {
        let rules = self.settings.policies.len();
        if rules > MAX_RULES
            && let Some(first) = self.settings.policies[MAX_RULES].first()
        {
            let text =
                format!("{rules} rules are too many; at most {MAX_RULES} are looked through");
            self.mistakes.push(Mistake::of(first.key, first.place.clone(), &text));
        }
    }

    fn detect(&mut self) {
        let window = self.settings.whole("detect.window_ms");
        let tick = self.settings.whole("detect.tick_ms");
        if window / tick > 1000 {
            let text = format!("{tick} is less than a thousandth of detect.window_ms, {window}");
            self.refuse("detect.tick_ms", &text);
        }
        if window >= tick {
            return;
        }
        if self.settings.get("detect.window_ms").place == Place::Default {
            let text = format!("{tick} is more than detect.window_ms, which is {window}");
            self.refuse("detect.tick_ms", &text);
        } else {
            let text = format!("{window} is less than detect.tick_ms, which is {tick}");
            self.refuse("detect.window_ms", &text);
        }
    }

    fn auth(&mut self) {
        match (self.settings.text("auth"), self.is_given("users")) {
            ("service", false) => {
                self.refuse("auth", "\"service\" needs a users file; set users to its path");
            }
            ("pass-through", true) => self.refuse(
                "users",
                "nobody would be checked against it, since auth is \"pass-through\"; set auth = \
                 \"service\"",
            ),
            _ => {}
        }
    }

    fn handover(&mut self) {
        if self.is_given("handover") && *self.settings.url("upstream") == Url::Embedded {
            self.refuse(
                "handover",
                "needs an upstream: the embedded store ends with its process and cannot be handed \
                 over",
            );
        }
    }

    fn tls(&mut self) {
        self.pair("tls.certificate", "tls.key");
        if self.is_given("tls.require_client_certificate") && !self.is_given("tls.client_ca") {
            self.refuse(
                "tls.require_client_certificate",
                "needs tls.client_ca, to know which certificates are good",
            );
        }
        if let Some(address) = self.settings.address("tls.listen") {
            if !self.is_given("tls.certificate") && !self.is_given("tls.key") {
                self.refuse("tls.listen", "needs tls.certificate and tls.key");
            }
            if address.port() != 0 && Some(address) == self.settings.address("listen") {
                self.refuse("tls.listen", "is the address of listen; TLS needs another one");
            }
            return;
        }
        for path in
            ["tls.certificate", "tls.key", "tls.client_ca", "tls.require_client_certificate"]
        {
            if self.is_given(path) {
                self.refuse(path, "has no effect without tls.listen");
            }
        }
    }

    fn upstream_tls(&mut self) {
        self.pair("upstream_tls.certificate", "upstream_tls.key");
        let encrypted = |path: &str| is_encrypted(self.settings.url(path));
        if encrypted("upstream") || encrypted("coordination.url") {
            return;
        }
        for leaf in ["ca", "certificate", "key", "server_name"] {
            let path = format!("upstream_tls.{leaf}");
            if self.is_given(&path) {
                self.refuse(&path, "has no effect, since upstream is not a rediss:// URL");
            }
        }
    }

    fn policies(&mut self) {
        let settings = self.settings;
        for rule in &settings.policies {
            let find = |path: &str| rule.iter().find(|setting| setting.key.path == path);
            let mode = find("policy.mode").map_or("", Setting::text);
            let Some(replica_reads) = find("policy.replica_reads") else { continue };
            if replica_reads.switch() && !["coherent", "relaxed"].contains(&mode) {
                let text = format!(
                    "a replica may answer with an older value, which mode {mode:?} rules out; use \
                     mode \"coherent\" or \"relaxed\", or leave it out"
                );
                let place = replica_reads.place.clone();
                self.mistakes.push(Mistake::of(replica_reads.key, place, &text));
            }
        }
    }
}

/// Whether connections to this upstream are encrypted.
pub(super) fn is_encrypted(url: &Url) -> bool {
    match url {
        Url::Embedded => false,
        Url::Server(server) => server.tls,
        Url::Cluster(cluster) => cluster.tls,
        Url::Sentinel(sentinel) => sentinel.tls,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{merge, toml_file};
    use super::*;

    fn mistakes(file: &str) -> Vec<String> {
        let settings = merge(vec![toml_file::read("h.toml", file.as_bytes())]).expect("merges");
        find(&settings).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_fits_together_is_taken() {
        for good in [
            "",
            "auth = \"service\"\nusers = \"u.toml\"\n",
            "[tls]\nlisten = \"127.0.0.1:6390\"\ncertificate = \"c\"\nkey = \"k\"\n",
            "upstream = \"rediss+cluster://h\"\n[upstream_tls]\nca = \"c\"\n",
            "[[policy]]\nmatch = \"a\"\nmode = \"exact\"\nreplica_reads = false\n",
            "[[policy]]\nmatch = \"a\"\nmode = \"relaxed\"\nreplica_reads = true\n",
            "listen = \"127.0.0.1:0\"\n\
             [tls]\nlisten = \"127.0.0.1:0\"\ncertificate = \"c\"\nkey = \"k\"\n",
        ] {
            assert!(mistakes(good).is_empty(), "{good}\n{:?}", mistakes(good));
        }
    }

    #[test]
    fn what_does_not_fit_together_is_refused_with_the_reason() {
        for (bad, message) in [
            (
                "role = \"aggregator\"\n",
                "h.toml:1: role: \"aggregator\" needs a Redis in which to meet the others; set \
                 coordination.url (or upstream)",
            ),
            (
                "admin = \"0.0.0.0:9600\"\n",
                "h.toml:1: admin: can be reached from other machines; set admin_token_file, or \
                 listen on 127.0.0.1",
            ),
            (
                "[detect]\nwindow_ms = 40\n",
                "h.toml:2: detect.window_ms: 40 is less than detect.tick_ms, which is 50",
            ),
            (
                "auth = \"service\"\n",
                "h.toml:1: auth: \"service\" needs a users file; set users to its path",
            ),
            (
                "users = \"u\"\n",
                "h.toml:1: users: nobody would be checked against it, since auth is \
                 \"pass-through\"; set auth = \"service\"",
            ),
            (
                "handover = \"h.sock\"\n",
                "h.toml:1: handover: needs an upstream: the embedded store ends with its process \
                 and cannot be handed over",
            ),
            (
                "[tls]\nlisten = \"127.0.0.1:1\"\n",
                "h.toml:2: tls.listen: needs tls.certificate and tls.key",
            ),
            (
                "[tls]\nlisten = \"127.0.0.1:1\"\ncertificate = \"c\"\n",
                "h.toml:3: tls.certificate: needs tls.key as well",
            ),
            (
                "[tls]\nlisten = \"127.0.0.1:6380\"\ncertificate = \"c\"\nkey = \"k\"\n",
                "h.toml:2: tls.listen: is the address of listen; TLS needs another one",
            ),
            (
                "[tls]\nlisten = \"127.0.0.1:1\"\ncertificate = \"c\"\nkey = \"k\"\n\
                 require_client_certificate = true\n",
                "h.toml:5: tls.require_client_certificate: needs tls.client_ca, to know which \
                 certificates are good",
            ),
            (
                "[tls]\nclient_ca = \"c\"\n",
                "h.toml:2: tls.client_ca: has no effect without tls.listen",
            ),
            (
                "upstream = \"rediss://h\"\n[upstream_tls]\nkey = \"k\"\n",
                "h.toml:3: upstream_tls.key: needs upstream_tls.certificate as well",
            ),
            (
                "upstream = \"redis://h\"\n[upstream_tls]\nca = \"c\"\n",
                "h.toml:3: upstream_tls.ca: has no effect, since upstream is not a rediss:// URL",
            ),
            (
                "[[policy]]\nmatch = \"a\"\nmode = \"exact\"\nreplica_reads = true\n",
                "h.toml:4: policy.replica_reads: a replica may answer with an older value, which \
                 mode \"exact\" rules out; use mode \"coherent\" or \"relaxed\", or leave it out",
            ),
        ] {
            assert_eq!(mistakes(bad), [message], "{bad}");
        }
    }
}
