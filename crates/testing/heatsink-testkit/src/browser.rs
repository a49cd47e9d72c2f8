//! The dashboard as a person sees it: Chromium, driven over `WebDriver`, a browser for each test.
//!
//! Called by: the tests of the page, and those that compare what it shows with what was sent; behind
//! the feature `browser`.
//! Bound: [`PATIENCE`] for anything to appear. Driver and browser end with the test.
//!
//! Chromium and its driver are found on the path (Debian: `chromium`, `chromium-driver`), or by
//! `HEATSINK_TEST_CHROMIUM` and `HEATSINK_TEST_CHROMEDRIVER`. Without them such a test is skipped, and
//! says so.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fantoccini::wd::WebDriverCompatibleCommand;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper::Method;
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use url::{ParseError, Url};

/// Width and height of what is seen.
pub type Size = (u32, u32);

/// How long something may take to appear: a browser on a busy machine is slow to start.
const PATIENCE: Duration = Duration::from_secs(30);

/// The driver's process. Ends with the test.
struct Driver {
    process: Child,
    port: u16,
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A program: where the variable says, or on the path. Nothing if it is not there; a variable
/// that leads nowhere is a mistake.
fn program(variable: &str, names: &[&str]) -> Option<PathBuf> {
    if let Some(given) = std::env::var_os(variable) {
        let given = PathBuf::from(given);
        assert!(given.is_file(), "{variable} is not a program: {}", given.display());
        return Some(given);
    }
    let path = std::env::var_os("PATH")?;
    let mut places = std::env::split_paths(&path)
        .flat_map(|place| names.iter().map(move |name| place.join(name)));
    places.find(|place| place.is_file())
}

fn start_driver(program: &Path) -> Driver {
    let mut process = Command::new(program)
        .arg("--port=0")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the driver starts");
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let port = lines
        .by_ref()
        .map(|line| line.expect("the driver speaks"))
        .find_map(|line| {
            let (_, port) = line.rsplit_once("started successfully on port ")?;
            port.trim_end_matches('.').parse().ok()
        })
        .expect("the driver says its port");
    // What it says later is read, so that it can go on saying it.
    std::thread::spawn(move || lines.for_each(drop));
    Driver { process, port }
}

/// Runs a test in a browser, or says that it cannot. Screenshots are left in a directory.
pub fn with_browser(size: Size, screenshots: &Path, test: impl AsyncFnOnce(&Browser)) {
    let chromium =
        program("HEATSINK_TEST_CHROMIUM", &["chromium", "chromium-browser", "google-chrome"]);
    let driver = program("HEATSINK_TEST_CHROMEDRIVER", &["chromedriver"]);
    let (Some(chromium), Some(driver)) = (chromium, driver) else {
        eprintln!(
            "\n*** SKIPPED: the page was NOT tested in a browser. Install Debian's chromium and \
             chromium-driver, or set HEATSINK_TEST_CHROMIUM and HEATSINK_TEST_CHROMEDRIVER. ***\n"
        );
        return;
    };
    let driver = start_driver(&driver);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let browser = Browser::start(&driver, &chromium, size, screenshots).await;
        test(&browser).await;
        browser.client.close().await.expect("the browser closes");
    });
}

/// A command of Chromium's driver that is not in the standard.
#[derive(Debug)]
struct Extra(&'static str, Value);

impl WebDriverCompatibleCommand for Extra {
    fn endpoint(&self, base_url: &Url, session: Option<&str>) -> Result<Url, ParseError> {
        base_url.join(&format!("session/{}/{}", session.unwrap_or_default(), self.0))
    }

    fn method_and_body(&self, _: &Url) -> (Method, Option<String>) {
        (Method::POST, Some(self.1.to_string()))
    }
}

/// A browser with one page.
#[derive(Debug)]
pub struct Browser {
    client: Client,
    screenshots: PathBuf,
}

impl Browser {
    async fn start(driver: &Driver, chromium: &Path, size: Size, screenshots: &Path) -> Self {
        let capabilities = json!({
            "goog:chromeOptions": {
                "binary": chromium,
                "args": [
                    "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
                    "--no-first-run", "--disable-background-networking", "--hide-scrollbars",
                ],
            },
            "goog:loggingPrefs": { "browser": "ALL" },
        });
        let Value::Object(capabilities) = capabilities else { unreachable!() };
        let client = ClientBuilder::new(HttpConnector::new())
            .capabilities(capabilities)
            .connect(&format!("http://127.0.0.1:{}", driver.port))
            .await
            .expect("the browser starts");
        let browser = Self { client, screenshots: screenshots.to_owned() };
        // The window cannot be as narrow as a phone, but what is seen can.
        let (width, height) = size;
        let is_phone = width < 500;
        let metrics = json!({
            "width": width, "height": height, "mobile": is_phone,
            "deviceScaleFactor": if is_phone { 2 } else { 1 },
        });
        browser.devtools("Emulation.setDeviceMetricsOverride", metrics).await;
        browser
    }

    async fn devtools(&self, method: &str, params: Value) -> Value {
        let body = json!({ "cmd": method, "params": params });
        self.client.issue_cmd(Extra("goog/cdp/execute", body)).await.expect("the browser obeys")
    }

    /// Loads a page of a process anew.
    pub async fn open(&self, admin: SocketAddr, path: &str) {
        // A change of the fragment alone would load nothing.
        self.client.goto("about:blank").await.unwrap();
        self.client.goto(&format!("http://{admin}{path}")).await.unwrap();
    }

    /// Runs a script, and returns what it returns.
    pub async fn run(&self, script: &str) -> Value {
        self.client
            .execute(script, Vec::new())
            .await
            .unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    /// What an expression is.
    pub async fn value(&self, expression: &str) -> Value {
        self.run(&format!("return {expression};")).await
    }

    /// The same, of a number.
    pub async fn number(&self, expression: &str) -> f64 {
        self.value(expression).await.as_f64().unwrap()
    }

    /// How many elements there are.
    pub async fn count(&self, selector: &str) -> usize {
        self.client.find_all(Locator::Css(selector)).await.unwrap().len()
    }

    /// Waits until an expression holds.
    pub async fn until(&self, expression: &str) {
        let deadline = Instant::now() + PATIENCE;
        while self.value(expression).await != json!(true) {
            if Instant::now() > deadline {
                self.screenshot("failed").await;
                let logs = self.logs().await;
                panic!("it never holds: {expression}; the console: {logs:?}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until the page has drawn a sample that it has not drawn yet.
    pub async fn sample(&self) {
        let last = self.value("state.fleet.at(-1)?.at ?? ''").await;
        self.until(&format!("(state.fleet.at(-1)?.at ?? '') !== {last}")).await;
    }

    /// Clicks on an element, once it is there.
    pub async fn click(&self, selector: &str) {
        let element = self.client.wait().at_most(PATIENCE).for_element(Locator::Css(selector));
        element.await.unwrap().click().await.unwrap_or_else(|error| panic!("{selector}: {error}"));
    }

    /// Follows the link with this text.
    pub async fn follow(&self, text: &str) {
        let link = self.client.find(Locator::LinkText(text)).await.unwrap();
        link.click().await.unwrap();
    }

    /// Types into a field, in place of what is in it.
    pub async fn fill(&self, selector: &str, text: &str) {
        let element = self.client.find(Locator::Css(selector)).await.unwrap();
        element.clear().await.unwrap();
        element.send_keys(text).await.unwrap();
    }

    /// Chooses from a list.
    pub async fn choose(&self, selector: &str, value: &str) {
        let element = self.client.find(Locator::Css(selector)).await.unwrap();
        element.select_by_value(value).await.unwrap();
    }

    /// Presses a key where the focus is.
    pub async fn press(&self, key: &str) {
        self.client.active_element().await.unwrap().send_keys(key).await.unwrap();
    }

    /// Has the page know that its reader likes it dark.
    pub async fn prefer_dark(&self) {
        let features = json!([{ "name": "prefers-color-scheme", "value": "dark" }]);
        self.devtools("Emulation.setEmulatedMedia", json!({ "features": features })).await;
    }

    /// The text of an element as a person reads it.
    pub async fn text(&self, selector: &str) -> String {
        let element = self.client.find(Locator::Css(selector)).await.unwrap();
        element.text().await.unwrap()
    }

    /// Keeps the whole page as a picture.
    pub async fn screenshot(&self, name: &str) {
        use base64::Engine as _;
        let params = json!({ "format": "png", "captureBeyondViewport": true });
        let answer = self.devtools("Page.captureScreenshot", params).await;
        let text = answer["data"].as_str().expect("a picture");
        let png = base64::engine::general_purpose::STANDARD.decode(text).unwrap();
        std::fs::create_dir_all(&self.screenshots).unwrap();
        std::fs::write(self.screenshots.join(format!("{name}.png")), png).unwrap();
    }

    async fn logs(&self) -> Vec<Value> {
        let answer = self.client.issue_cmd(Extra("se/log", json!({ "type": "browser" }))).await;
        answer.expect("the console is kept").as_array().unwrap().clone()
    }

    /// The console has no warning and no error.
    pub async fn no_errors(&self) {
        assert_eq!(self.logs().await, Vec::<Value>::new());
    }

    /// The only errors are answers of this status, which the browser notes by itself; and
    /// there are such.
    pub async fn no_errors_but(&self, status: &str) {
        let (expected, other): (Vec<_>, Vec<_>) = self.logs().await.into_iter().partition(|log| {
            let is_network = log["source"] == "network";
            is_network && log["message"].as_str().unwrap().contains(&format!("status of {status}"))
        });
        assert_eq!(other, Vec::<Value>::new());
        assert!(!expected.is_empty());
    }
}
