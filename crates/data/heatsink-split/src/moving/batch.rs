//! Requests of bounded size that add many members to one key.

use heatsink_resp::encode;

/// Most members of one request.
const MEMBERS: usize = 512;
/// Bytes of one request, unless a single member has more.
const BYTES: usize = 64 * 1024;
/// Longest header of an argument, and its end.
const FRAME_BYTES: usize = 24;

/// Members on their way into one key.
pub(super) struct Batch {
    /// The command and the key, as they stand in a request.
    head: Vec<u8>,
    done: Vec<Vec<u8>>,
    args: usize,
    members: usize,
    body: Vec<u8>,
}

impl Batch {
    pub(super) fn new(command: &[u8], key: &[u8]) -> Self {
        let mut head = Vec::new();
        encode::bulk(&mut head, command);
        encode::bulk(&mut head, key);
        Self { head, done: Vec::new(), args: 0, members: 0, body: Vec::new() }
    }

    /// One more member.
    pub(super) fn push(&mut self, args: &[&[u8]]) {
        let payload: usize = args.iter().map(|arg| arg.len() + FRAME_BYTES).sum();
        let bytes = FRAME_BYTES + self.head.len() + self.body.len() + payload;
        if self.members == MEMBERS || bytes > BYTES {
            self.cut();
        }
        for arg in args {
            encode::bulk(&mut self.body, arg);
        }
        self.args += args.len();
        self.members += 1;
    }

    /// The requests; none if there was no member.
    pub(super) fn finish(mut self) -> Vec<Vec<u8>> {
        self.cut();
        self.done
    }

    fn cut(&mut self) {
        if self.members == 0 {
            return;
        }
        let mut request = Vec::with_capacity(FRAME_BYTES + self.head.len() + self.body.len());
        encode::header(&mut request, b'*', 2 + self.args);
        request.extend_from_slice(&self.head);
        request.append(&mut self.body);
        self.done.push(request);
        (self.args, self.members) = (0, 0);
    }
}
