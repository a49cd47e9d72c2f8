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
    const style = getComputedStyle(document.documentElement);
    const luminance = (name) => {
        canvas.fillStyle = style.getPropertyValue('--' + name);
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
            hot.entry.frequency = base * swing;
            hot.entry.reads_per_second = base * swing * 0.99;
            hot.entry.writes_per_second = base * swing * 0.01;
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
        rig.fake.hot.lock().unwrap()[3].entry.frequency = 81_234.0;
        rig.fake.hot.lock().unwrap()[3].entry.reads_per_second = 81_234.0;
        rig.fake.hot.lock().unwrap()[3].entry.writes_per_second = 0.0;
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
        let bar = "getComputedStyle(document.querySelector('#chart-nodes .bar')).fill";
        assert_eq!(browser.value(bar).await, "rgb(11, 107, 203)");
        browser.screenshot("overview-light").await;
        browser.prefer_dark().await;
        browser.until(&format!("{bar} === 'rgb(88, 166, 255)'")).await;
        browser.screenshot("overview-dark").await;
        browser.no_errors().await;
    });
}

/// Places of a line that was drawn, as `[x, y]`, one list for each unbroken piece.
const PIECES: &str = "
    [...document.querySelectorAll('#chart-requests .line')].map((line) =>
        line.getAttribute('d').split('M').slice(1).map((piece) =>
            piece.split('L').map((place) => place.split(',').map(Number))))
";

#[test]
fn charts_show_what_was_measured() {
    let rig = Rig::start(Settings { sample_interval: Duration::from_secs(3600), ..quick() });
    with_browser(DESKTOP, async |browser| {
        browser.open(rig.address, "/").await;
        browser.until("document.getElementById('connection').textContent === 'live'").await;
        // Two minutes, in which nothing was measured for 20 s, and what was saved not at first.
        browser
            .run(
                "const sample = (second, served, saved) => ({
                    at: new Date(1767225600000 + second * 1000).toISOString(),
                    served_per_second: served, saved_per_second: saved,
                 });
                 state.fleet = [sample(0, 0, null), sample(40, 2000, null), sample(60, 4000, 1000),
                                sample(65, 4000, 1000), sample(120, 3000, 500)];
                 state.nodes = [{ node: 'n1:1', commands_per_second: 300, share: 0.75 },
                                { node: 'n2:1', commands_per_second: 100, share: 0.25 }];
                 renderOverview()",
            )
            .await;
        let drawn = browser.value(PIECES.trim()).await;
        let lengths = |line: usize| -> Vec<usize> {
            let pieces = drawn[line].as_array().expect("a line");
            pieces.iter().map(|piece| piece.as_array().expect("a piece").len()).collect()
        };
        assert_eq!(lengths(0), [1, 1, 2, 1], "{drawn}");
        assert_eq!(lengths(1), [2, 1], "{drawn}");
        // Twice as long ago is twice as far left, twice as much twice as high.
        let place = |line: usize, piece: usize| -> (f64, f64) {
            let at = &drawn[line][piece][0];
            (at[0].as_f64().expect("x"), at[1].as_f64().expect("y"))
        };
        let (first, half, last) = (place(0, 0), place(0, 2), place(0, 3));
        assert!(((last.0 - first.0) - 2.0 * (last.0 - half.0)).abs() < 0.5, "{drawn}");
        let (two, four) = (place(0, 1), half);
        assert!(((first.1 - four.1) - 2.0 * (first.1 - two.1)).abs() < 0.5, "{drawn}");
        // The axes say what that is.
        let words = browser
            .value("[...document.querySelectorAll('#chart-requests > text')].map((one) => one.textContent)")
            .await;
        assert_eq!(
            words,
            json!([
                "0",
                "1K",
                "2K",
                "3K",
                "4K",
                "now",
                "30 s ago",
                "1 min ago",
                "90 s ago",
                "2 min ago",
                "  ― requests  ― saved"
            ])
        );
        let bars = "[...document.querySelectorAll('#chart-nodes .bar')].map((bar) => [bar.textContent, bar.width.baseVal.value])";
        let bars = browser.value(bars).await;
        let width = |bar: usize| bars[bar][1].as_f64().expect("a width");
        assert_eq!((&bars[0][0], &bars[1][0]), (&json!("n1:1"), &json!("n2:1")));
        assert!((width(0) - 3.0 * width(1)).abs() < 0.5 && width(1) > 10.0, "{bars}");
        // Whoever points at the line is told the figures of that time.
        let point = |at: &str| {
            format!(
                "const chart = document.getElementById('chart-requests');
                 const {{ left }} = chart.getBoundingClientRect();
                 chart.dispatchEvent(new PointerEvent('pointermove', {{ clientX: left + {at} }}));
                 return [...chart.querySelectorAll('.tip tspan')].map((one) => one.textContent)"
            )
        };
        let told = browser.run(&point("chart.clientWidth - 12")).await;
        assert_eq!((&told[1], &told[2]), (&json!("requests: 3K"), &json!("saved: 500")));
        browser.screenshot("chart-pointed-at").await;
        let told = browser.run(&point("50")).await;
        assert_eq!((&told[1], told.get(2)), (&json!("requests: 0"), None));
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
            assert_eq!((promoted.entry.split_factor, promoted.entry.ttl_seconds), (2, Some(600)));
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
