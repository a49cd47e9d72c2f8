//! The page in a real browser: Chromium, driven over `WebDriver`. Screenshots of what was seen
//! are left in `page-screenshots` of the target directory. Where no browser is found these tests are
//! skipped, and say so.

use std::path::Path;
use std::time::Duration;

use heatsink_admin::control::{Change, Readiness};
use heatsink_admin::{Settings, Token};
use heatsink_testkit::browser::{self, Browser, Size};
use serde_json::json;

use crate::rig::{Rig, hot, load};

const DESKTOP: Size = (1280, 900);
const PHONE: Size = (360, 740);

/// The colours of text that have a contrast below 4.5 to a ground that they stand on, by the
/// formula of the accessibility guidelines.
const CONTRASTS: &str = "
    const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
    const luminance = (name) => {
        canvas.fillStyle = colour(name);
        canvas.fillRect(0, 0, 1, 1);
        const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((part) =>
            part / 255 <= 0.03928 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const contrast = (a, b) => {
        const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x);
        return (high + 0.05) / (low + 0.05);
    };
    const pairs = [['on-primary', 'primary']];
    for (const text of ['text', 'muted', 'link', 'good', 'warm', 'bad']) {
        pairs.push([text, 'card'], [text, 'ground']);
    }
    return pairs.map(([a, b]) => [a, b, contrast(a, b)]).filter(([, , value]) => value < 4.5);
";

fn with_browser(size: Size, test: impl AsyncFnOnce(&Browser)) {
    let screenshots = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page-screenshots");
    browser::with_browser(size, &screenshots, test);
}

fn quick() -> Settings {
    Settings { sample_interval: Duration::from_millis(50), ..Settings::default() }
}

/// Lets the rates rise and fall for a while, so that there is something to draw.
async fn history(browser: &Browser, rig: &Rig) {
    for step in 0..60_u32 {
        let swing = 1.0 + (f64::from(step) / 6.0).sin() / 3.0;
        *rig.fake.rate.lock().unwrap() = Some(31_000.0 * swing);
        *rig.fake.loads.lock().unwrap() =
            [1.0, 0.8].map(|part| Some(load(31_000.0 * swing * part, 6000.0 * swing, 2000.0)));
        for (hot, base) in
            rig.fake.hot.lock().unwrap().iter_mut().zip([48_211.0, 900.0, 10.0, 2000.0, 1500.0])
        {
            hot.frequency = base * swing;
            hot.reads_per_second = base * swing * 0.99;
            hot.writes_per_second = base * swing * 0.01;
        }
        browser.sample().await;
    }
}

#[test]
fn what_happens_appears_by_itself() {
    let rig = Rig::start(quick());
    with_browser(DESKTOP, async |browser| {
        browser.open(rig.address, "/").await;
        browser.until("document.querySelectorAll('#key-rows tr').length === 3").await;
        browser.until("document.getElementById('connection').textContent === 'live'").await;

        // A key comes: by an event, without any doing of the person who looks.
        let came = hot(b"viral:1", 70_000.0);
        rig.fake.hot.lock().unwrap().push(came.clone());
        rig.fake.tell(1, Change::HotKey(Box::new(came)));
        browser.until("[...document.querySelectorAll('#key-rows a')].some((a) => a.textContent === 'viral:1')").await;
        // Its rate changes: by a sample.
        rig.fake.hot.lock().unwrap()[3].frequency = 81_234.0;
        rig.fake.hot.lock().unwrap()[3].reads_per_second = 81_234.0;
        rig.fake.hot.lock().unwrap()[3].writes_per_second = 0.0;
        browser
            .until("document.querySelector('#key-rows tr').textContent.includes('81,234')")
            .await;
        *rig.fake.rate.lock().unwrap() = Some(60_000.0);
        browser.until("document.getElementById('tile-requests').textContent === '120,000'").await;
        browser.until("document.getElementById('tile-share').textContent === '75 %'").await;
        // Of the whole fleet, not of the process that answers.
        browser.until("document.getElementById('tile-saved').textContent === '60'").await;
        browser
            .until(
                "document.getElementById('tile-saved-note').textContent === '60 % of all requests'",
            )
            .await;
        let [_, own] = rig.fake.loads.lock().unwrap().clone();
        *rig.fake.loads.lock().unwrap() = [None, own];
        browser.until("document.getElementById('tile-saved-note').textContent === '37.5 % of all requests, of 1 of 2 proxies'").await;

        // It goes.
        rig.fake.hot.lock().unwrap().pop();
        rig.fake.tell(2, Change::Removed { key: b"viral:1".to_vec(), reason: "cold".into() });
        browser.until("![...document.querySelectorAll('#key-rows a')].some((a) => a.textContent === 'viral:1')").await;

        // The process is cut off from the others, and says so.
        let reasons = vec!["degraded: the store cannot be reached.".to_owned()];
        let readiness = Readiness { ready: true, degraded: true, reasons, ..Readiness::default() };
        rig.fake.tell(3, Change::Readiness(readiness));
        browser
            .until("document.getElementById('notice').textContent.includes('cannot be reached')")
            .await;
        // A server behind it is down: that is said although the fleet is well.
        let reasons = vec!["The upstream n1:6379 is down since today: connection refused.".into()];
        let readiness = Readiness { ready: true, reasons, ..Readiness::default() };
        rig.fake.tell(4, Change::Readiness(readiness));
        browser
            .until("document.getElementById('notice').textContent.includes('n1:6379 is down')")
            .await;
        browser.screenshot("upstream-down").await;
        rig.fake.tell(5, Change::Readiness(Readiness { ready: true, ..Readiness::default() }));
        browser.until("document.getElementById('notice').hidden").await;

        history(browser, &rig).await;
        let bar = "nodesChart.getDatasetMeta(0).data[0].options.backgroundColor";
        assert_eq!(browser.value(bar).await, "#0b6bcb");
        browser.screenshot("overview-light").await;
        browser.prefer_dark().await;
        browser.until(&format!("{bar} === '#58a6ff'")).await;
        browser.screenshot("overview-dark").await;
        browser.no_errors().await;
    });
}

#[test]
fn a_key_is_promoted_and_demoted_after_a_question() {
    let rig = Rig::start(quick());
    with_browser(DESKTOP, async |browser| {
        browser.open(rig.address, "/").await;
        browser.until("document.querySelectorAll('#key-rows tr').length === 3").await;
        browser.click("#promote-new").await;
        browser.fill("#promote-key", "<img src=x onerror=alert(1)>/ä").await;
        browser.choose("#promote-mitigation", "split").await;
        browser.fill("#promote-ttl", "600").await;
        browser.screenshot("promote").await;
        assert_eq!(rig.fake.hot.lock().unwrap().len(), 3, "nothing happens before it is confirmed");
        browser.click("#promote-confirm").await;
        browser.until("document.querySelectorAll('#key-rows tr').length === 4").await;
        {
            let all = rig.fake.hot.lock().unwrap();
            let promoted = all.last().unwrap();
            assert_eq!(promoted.key, "<img src=x onerror=alert(1)>/ä".as_bytes());
            assert_eq!((promoted.split_factor, promoted.ttl_seconds), (2, Some(600)));
        }
        assert_eq!(browser.count("#key-rows img").await, 0, "a key is text");
        browser.until("document.getElementById('toast').textContent.startsWith('Promoted')").await;

        // The page of a key whose name is no text.
        browser.follow("%FF%00%2Fbin").await;
        browser.until("document.getElementById('key-title').textContent === '%FF%00%2Fbin'").await;
        browser
            .until("document.getElementById('key-policy').textContent.includes('coherent')")
            .await;
        let told = rig.fake.hot.lock().unwrap()[2].clone();
        rig.fake.tell(1, Change::HotKey(Box::new(told)));
        browser.until("document.querySelectorAll('#key-decisions li').length === 1").await;
        browser
            .until(
                "document.getElementById('key-decisions').textContent.includes('threshold 5 000')",
            )
            .await;
        browser.click("#key-demote").await;
        browser.until("document.getElementById('demote-key').textContent === '%FF%00%2Fbin'").await;
        browser.click("#demote-dialog [data-close]").await;
        assert_eq!(rig.fake.hot.lock().unwrap().len(), 4, "cancelled");
        browser.click("#key-demote").await;
        browser.click("#demote-confirm").await;
        browser.until("document.getElementById('toast').textContent.includes('300 s')").await;
        assert!(!rig.fake.hot.lock().unwrap().iter().any(|hot| hot.key == b"\xff\x00/bin"));
        browser.until("document.getElementById('key-demote').hidden").await;

        // What the API refuses is said in its words.
        *rig.fake.fails_with.lock().unwrap() =
            Some(heatsink_admin::control::ControlError::StoreUnavailable { why: "Gone.".into() });
        browser.click("#key-promote").await;
        browser.click("#promote-confirm").await;
        browser
            .until("document.querySelector('#promote-dialog .error').textContent.includes('Gone.')")
            .await;
        browser.no_errors_but("503").await;
    });
}

#[test]
fn a_wrong_token_is_refused_and_the_right_one_is_kept() {
    let settings = Settings { token: Token::new("s3cret"), ..quick() };
    let rig = Rig::start(settings);
    with_browser(DESKTOP, async |browser| {
        browser.open(rig.address, "/").await;
        browser.until("document.getElementById('token-dialog').open").await;
        assert_eq!(browser.count("#key-rows tr").await, 0);
        browser.fill("#token-value", "wrong").await;
        browser.click("#token-confirm").await;
        browser.until("document.querySelector('#token-dialog .error').textContent.includes('not the one of the configuration')").await;
        browser.screenshot("wrong-token").await;
        browser.fill("#token-value", "s3cret").await;
        browser.click("#token-confirm").await;
        browser.until("document.querySelectorAll('#key-rows tr').length === 3").await;
        browser.until("document.getElementById('connection').textContent === 'live'").await;
        // It is used for changes.
        browser.click("[aria-label='Demote user:9999']").await;
        browser.click("#demote-confirm").await;
        browser.until("document.querySelectorAll('#key-rows tr').length === 2").await;
        assert_eq!(rig.fake.hot.lock().unwrap().len(), 2);
        // And it survives a reload.
        browser.open(rig.address, "/").await;
        browser.until("document.querySelectorAll('#key-rows tr').length === 2").await;
        browser.no_errors_but("401").await;
    });
}

#[test]
fn a_phone_shows_all_of_it_without_scrolling_sideways() {
    let rig = Rig::start(quick());
    {
        let mut all = rig.fake.hot.lock().unwrap();
        let long = "session:".to_owned() + &"0123456789abcdef".repeat(12);
        all.push(hot(long.as_bytes(), 700.0));
    }
    with_browser(PHONE, async |browser| {
        for (path, name, ready) in [
            ("/#/", "phone-overview", "document.querySelectorAll('#key-rows tr').length === 4"),
            (
                "/#/key/user%3A9999",
                "phone-key",
                "document.getElementById('key-facts').children.length > 5",
            ),
            (
                "/#/policies",
                "phone-policies",
                "document.querySelectorAll('#policy-rows tr').length === 4",
            ),
            (
                "/#/proxies",
                "phone-proxies",
                "document.querySelectorAll('#proxy-rows tr').length === 2",
            ),
        ] {
            browser.open(rig.address, path).await;
            browser.until(ready).await;
            browser.sample().await;
            let width = browser.number("document.documentElement.scrollWidth").await;
            assert!(width <= f64::from(PHONE.0), "{name} is {width} wide");
            browser.screenshot(name).await;
        }
        browser.open(rig.address, "/#/").await;
        browser.until("document.querySelectorAll('#key-rows tr').length === 4").await;
        browser.click("[aria-label='Demote user:9999']").await;
        browser.screenshot("phone-demote").await;
        browser.click("#demote-confirm").await;
        browser.until("document.querySelectorAll('#key-rows tr').length === 3").await;
        browser.no_errors().await;
    });
}

#[test]
fn keys_and_keyboard() {
    let rig = Rig::start(quick());
    with_browser(DESKTOP, async |browser| {
        browser.open(rig.address, "/").await;
        browser.until("document.querySelectorAll('#key-rows tr').length === 3").await;
        // Any column sorts, by the keyboard too.
        browser.run("document.querySelector('[data-column=key] button').focus()").await;
        browser.press("\u{e007}").await;
        browser.until("document.querySelector('#key-rows a').textContent === '%FF%00%2Fbin'").await;
        browser.until("document.querySelector('[data-column=key]').ariaSort === 'ascending'").await;
        browser.fill("#key-filter", "cart").await;
        browser.until("document.querySelectorAll('#key-rows tr').length === 1").await;
        // Everything that can be operated has a name.
        let unnamed = "[...document.querySelectorAll('button, input, select, a')].filter((one) => \
             !(one.ariaLabel || one.textContent.trim() || one.labels?.[0]?.textContent.trim())).length";
        assert_eq!(browser.value(unnamed).await, json!(0));
        // Text can be told from its ground, in both themes.
        for theme in ["light", "dark"] {
            browser.run(&format!("setTheme('{theme}')")).await;
            let low = browser.run(CONTRASTS).await;
            assert_eq!(low, json!([]), "{theme}");
        }
        browser.run("setTheme('system')").await;
        // A dialog closes by Escape, and the focus goes back.
        browser.run("document.getElementById('promote-new').focus()").await;
        browser.press("\u{e007}").await;
        browser.until("document.getElementById('promote-dialog').open").await;
        browser.press("\u{e00c}").await;
        browser.until("!document.getElementById('promote-dialog').open").await;
        browser.until("document.activeElement.id === 'promote-new'").await;
        // The theme is chosen and remembered.
        browser.click("#theme-button").await;
        browser.click("#theme-button").await;
        browser
            .until("getComputedStyle(document.body).backgroundColor === 'rgb(16, 19, 23)'")
            .await;
        browser.open(rig.address, "/#/proxies").await;
        browser.until("document.documentElement.dataset.theme === 'dark'").await;
        browser.no_errors().await;
    });
}

#[test]
fn the_rules_and_the_members_are_listed() {
    let rig = Rig::start(quick());
    with_browser(DESKTOP, async |browser| {
        browser.open(rig.address, "/#/policies").await;
        browser.until("document.querySelectorAll('#rule-rows tr').length === 3").await;
        let rows = "[...document.querySelectorAll('#rule-rows tr')].map((row) => [...row.children].map((cell) => cell.textContent))";
        assert_eq!(
            browser.value(rows).await,
            json!([
                ["1", "balance:total", "exact", "coalesce", "hot_threshold = 1000"],
                ["2", "balance:*", "exact", "coalesce", "hot_threshold = 1000"],
                ["default", "all other keys", "coherent", "coalesce", "hot_threshold = 1000"],
            ])
        );
        browser.screenshot("policies").await;
        // Each member has figures of its own.
        browser.open(rig.address, "/#/proxies").await;
        browser.until("document.querySelectorAll('#proxy-rows tr').length === 2").await;
        let figures = "[...document.querySelectorAll('#proxy-rows tr')].map((row) => ['Saved', 'Hottest node'].map((label) => row.querySelector(`[data-label='${label}']`).textContent))";
        browser
            .until(&format!(
                "JSON.stringify({figures}) === '[[\"37.5 %\",\"100 %\"],[\"75 %\",\"66.7 %\"]]'"
            ))
            .await;
        browser.screenshot("proxies").await;
        browser.no_errors().await;
    });
}

#[test]
fn a_restart_is_survived() {
    let mut rig = Rig::start(quick());
    with_browser(DESKTOP, async |browser| {
        browser.open(rig.address, "/").await;
        browser.until("document.getElementById('connection').textContent === 'live'").await;
        let address = rig.address;
        rig.join();
        browser.until("document.getElementById('connection').textContent === 'reconnecting'").await;
        rig = Rig::start_at(address, quick());
        rig.fake.hot.lock().unwrap().pop();
        browser.until("document.getElementById('connection').textContent === 'live'").await;
        browser.until("document.querySelectorAll('#key-rows tr').length === 2").await;
    });
}
