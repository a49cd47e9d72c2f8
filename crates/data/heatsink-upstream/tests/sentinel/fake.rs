//! A sentinel that says what a test wants, for what real ones say only for a moment.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use heatsink_resp::encode;
use heatsink_resp::reply::{ReplyScan, Status};
use heatsink_resp::value::Value;

pub(crate) struct Fake {
    pub(crate) port: u16,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// Port of the primary, and the epoch in which it became that.
    answer: (u16, u64),
    asked: usize,
    dead: bool,
    open: Vec<TcpStream>,
}

impl Fake {
    pub(crate) fn start(primary: u16, epoch: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let fake = Self { port, state: Arc::default() };
        fake.say(primary, epoch);
        let state = Arc::clone(&fake.state);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut locked = state.lock().expect("no test panics with it");
                if locked.dead {
                    return;
                }
                locked.open.push(stream.try_clone().expect("a descriptor"));
                let state = Arc::clone(&state);
                thread::spawn(move || serve(stream, &state));
            }
        });
        fake
    }

    /// What it answers from now on.
    pub(crate) fn say(&self, primary: u16, epoch: u64) {
        self.state().answer = (primary, epoch);
    }

    /// How often it was asked for the primary.
    pub(crate) fn asked(&self) -> usize {
        self.state().asked
    }

    /// Closes everything.
    pub(crate) fn kill(&self) {
        let mut state = self.state();
        state.dead = true;
        for stream in state.open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        drop(state);
        // Wakes the listener, which goes then.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics with it")
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.kill();
    }
}

fn serve(mut stream: TcpStream, state: &Mutex<State>) {
    let (mut received, mut chunk) = (Vec::new(), [0; 4096]);
    // Said together with the address, since the two belong together.
    let mut epoch = String::new();
    while let Ok(count @ 1..) = stream.read(&mut chunk) {
        received.extend_from_slice(&chunk[..count]);
        // A request is an array of strings and so looks like a reply.
        while let Ok(Status::Complete(len)) = ReplyScan::default().advance(&received) {
            let request = Value::decode(&received[..len]).expect("complete");
            received.drain(..len);
            if stream.write_all(&reply(&request, state, &mut epoch)).is_err() {
                return;
            }
        }
    }
}

fn reply(request: &Value, state: &Mutex<State>, epoch: &mut String) -> Vec<u8> {
    let words: Vec<&[u8]> = request.array().iter().filter_map(Value::text).collect();
    let mut state = state.lock().expect("no test panics with it");
    let mut out = Vec::new();
    match words[..] {
        [_, b"GET-MASTER-ADDR-BY-NAME", _] => {
            state.asked += 1;
            *epoch = state.answer.1.to_string();
            encode::command(&mut out, &["127.0.0.1", &state.answer.0.to_string()]);
        }
        [_, b"MASTER", _] => encode::command(&mut out, &["config-epoch", epoch.as_str()]),
        [b"SUBSCRIBE", _] => out.extend_from_slice(b"*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n"),
        _ => out.extend_from_slice(b"*0\r\n"),
    }
    out
}
