//! The checker finds what it is there to find, in what clients recorded.
//!
//! A small proxy has the classic mistake: a read is given the reply of one that had left before
//! it came.
//!
//! ```text
//! 1. read A leaves              2. the server executes A
//! 3. a write is executed and answered
//! 4. read B arrives and joins A: it is given what the write replaced
//! ```

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use heatsink_testkit::{RawClient, RedisServer, seed_from};

use crate::recorder::Session;
use crate::workload::{Mix, OPERATIONS, Workload};

const HISTORIES: usize = 8;
/// How long the reply to a read is under way: others come and go meanwhile.
const WAY: Duration = Duration::from_millis(1);

/// What is out for the reads of one key.
#[derive(Default)]
struct Flight {
    reply: Mutex<Option<Vec<u8>>>,
    landed: Condvar,
}

/// A proxy that forwards, and answers reads together if it is told to.
struct Coalescer {
    server: SocketAddr,
    joins_flights: bool,
    flights: Mutex<HashMap<Vec<u8>, Arc<Flight>>>,
}

impl Coalescer {
    /// Serves whoever connects; its threads end with the last connection.
    fn start(server: SocketAddr, joins_flights: bool) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let addr = listener.local_addr().expect("it is bound");
        let this = Arc::new(Self { server, joins_flights, flights: Mutex::default() });
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let this = Arc::clone(&this);
                // The client closing is the end.
                thread::spawn(move || this.serve(client).err());
            }
        });
        addr
    }

    fn serve(&self, mut client: TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        let mut server = RawClient::try_connect(self.server)?;
        loop {
            let request = read_request(&mut client)?;
            let reply = if self.joins_flights && request.windows(5).any(|word| word == b"\nGET\r") {
                self.read(&mut server, &request)?
            } else {
                ask(&mut server, &request, Duration::ZERO)?
            };
            client.write_all(&reply)?;
        }
    }

    fn read(&self, server: &mut RawClient, request: &[u8]) -> io::Result<Vec<u8>> {
        let mut flights = lock(&self.flights);
        if let Some(flight) = flights.get(request).map(Arc::clone) {
            // The mistake: nobody asks whether it has left.
            drop(flights);
            let reply = flight.landed.wait_while(lock(&flight.reply), |reply| reply.is_none());
            return Ok(reply.unwrap_or_else(PoisonError::into_inner).clone().expect("it landed"));
        }
        let flight = Arc::<Flight>::default();
        flights.insert(request.to_vec(), Arc::clone(&flight));
        drop(flights);
        let reply = ask(server, request, WAY)?;
        lock(&self.flights).remove(request);
        *lock(&flight.reply) = Some(reply.clone());
        flight.landed.notify_all();
        Ok(reply)
    }
}

fn ask(server: &mut RawClient, request: &[u8], way: Duration) -> io::Result<Vec<u8>> {
    server.try_send_raw(request)?;
    let reply = server.try_read_frame(Duration::from_secs(10))?.expect("it answers");
    thread::sleep(way);
    Ok(reply)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One request of a client that sends one at a time: it ends with the line that its head
/// promises.
fn read_request(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 1024];
    loop {
        let count = client.read(&mut chunk)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&chunk[..count]);
        let text = String::from_utf8_lossy(&bytes);
        let args = text.strip_prefix('*').and_then(|rest| rest.split_once("\r\n"));
        let args = args.and_then(|(count, _)| count.parse::<usize>().ok());
        if args.is_some_and(|args| text.matches("\r\n").count() == 1 + 2 * args) {
            return Ok(bytes);
        }
    }
}

/// Records through the small proxy; how many histories are not linearizable.
fn rejected(joins_flights: bool) -> usize {
    let mut rng = Rng::with_seed(seed_from("HEATSINK_LINEAR_SEED", 7));
    let server = RedisServer::start();
    let door = Coalescer::start(server.addr(), joins_flights);
    let histories = (0..HISTORIES).map(|number| {
        let mix = if number.is_multiple_of(2) { Mix::Counter } else { Mix::Text };
        let workload = Workload {
            mix,
            keys: 1 + number % 2,
            clients: 8,
            operations: OPERATIONS,
            depth: 1,
            pause_us: 0,
            hangs_up: false,
        };
        let keys = (0..workload.keys).map(|key| format!("{number}:{key}")).collect();
        Session::new(workload, keys, &[door]).record(&mut rng, |_| {})
    });
    let verdicts: Vec<_> = histories.map(|history| history.check()).collect();
    assert!(!verdicts.contains(&Ok(false)), "the search took too long");
    verdicts.iter().filter(|verdict| verdict.is_err()).count()
}

#[test]
fn joining_a_flight_that_has_left_is_found() {
    let rejected = rejected(true);
    println!("{rejected} of {HISTORIES} rejected");
    assert!(rejected > HISTORIES / 2, "{rejected} of {HISTORIES}");
}

#[test]
fn without_the_mistake_nothing_is_found() {
    assert_eq!(rejected(false), 0);
}
