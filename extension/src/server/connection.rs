//! One connection: requests in, replies and events out, and its end, of which the driver always hears.

use super::Limits;
use super::lines::{Line, LineBuffer};
use super::peer::Watch;
use crate::driver::{ClientId, Command, Gone};
use crate::outbox::{Outbox, Outgoing, is_reply, outbox, reply_id};
use leasekeeper_wire::{Code, Failure, Rejected, Reply, Request};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::io::{self, ErrorKind};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::mpsc::UnboundedSender;

/// How much is read at once.
const CHUNK: usize = 8 * 1024;

/// Serves one accepted connection until its end.
pub(super) async fn serve(
    stream: UnixStream,
    watch: Watch,
    client: ClientId,
    driver: UnboundedSender<Command>,
    limits: Limits,
) {
    let (outbox, outgoing) = outbox();
    let mut presence = Presence::begin(client, driver.clone(), outbox.clone());
    let mut connection = Connection {
        stream,
        client,
        driver,
        outbox,
        lines: LineBuffer::default(),
        output: Output { outgoing, buffer: Vec::new(), written: 0 },
        unanswered: 0,
        forwarded: Vec::new(),
    };
    let how = connection.converse(&watch, limits.in_flight).await;
    tracing::debug!(client, ?how, "connection ended");
    presence.end(how);
    if how == Gone::Closed {
        // The driver lets its outbox go once it has said its last; the half of a client that still reads gets it all.
        let _ = tokio::time::timeout(limits.flush, connection.flush(&watch)).await;
    }
}

/// Tells the driver of the connection's beginning and, whatever happens in between, of its end.
struct Presence {
    client: ClientId,
    driver: UnboundedSender<Command>,
    ended: bool,
}

impl Presence {
    fn begin(client: ClientId, driver: UnboundedSender<Command>, outbox: Outbox) -> Self {
        // A driver that is gone is noticed where requests are answered.
        let _ = driver.send(Command::Open { client, outbox });
        Self { client, driver, ended: false }
    }

    fn end(&mut self, how: Gone) {
        if !std::mem::replace(&mut self.ended, true) {
            let _ = self.driver.send(Command::Close { client: self.client, how });
        }
    }
}

impl Drop for Presence {
    /// Reached without [`Self::end`] by a panic, or when the server itself ends: the client may still believe.
    fn drop(&mut self) {
        self.end(Gone::Faulted);
    }
}

struct Connection {
    stream: UnixStream,
    client: ClientId,
    driver: UnboundedSender<Command>,
    outbox: Outbox,
    lines: LineBuffer,
    output: Output,
    /// Lines that were read, less replies that were taken to be written: what [`Limits::in_flight`] bounds.
    unanswered: usize,
    /// Ids of the requests that the driver has not answered.
    forwarded: Vec<u64>,
}

/// What is being written.
struct Output {
    outgoing: Outgoing,
    buffer: Vec<u8>,
    /// How much of `buffer` is written.
    written: usize,
}

impl Connection {
    async fn converse(&mut self, watch: &Watch, in_flight: usize) -> Gone {
        let overflow = self.output.outgoing.overflow();
        let driver = self.driver.clone();
        let mut driver_lives = true;
        loop {
            while self.unanswered < in_flight {
                match self.lines.next() {
                    Some(line) => self.take(line),
                    None => break,
                }
            }
            let reading = self.unanswered < in_flight;
            tokio::select! {
                biased;
                () = watch.dead() => return Gone::Closed,
                () = overflow.happened() => {
                    tracing::warn!(client = self.client, "a client does not read what it is sent: its connection is closed");
                    return Gone::Faulted;
                }
                () = driver.closed(), if driver_lives => {
                    driver_lives = false;
                    self.answer_for_the_driver();
                }
                ready = self.stream.writable(), if self.output.pending() => {
                    if ready.and_then(|()| self.output.write(&self.stream)).is_err() {
                        // Who only stopped reading has not left: it may still believe.
                        return if is_read_closed(&self.stream) { Gone::Closed } else { Gone::Faulted };
                    }
                }
                Some(line) = self.output.outgoing.next(), if !self.output.pending() => self.send(line),
                ready = self.stream.readable(), if reading => match ready.and_then(|()| self.read()) {
                    Ok(true) => {}
                    Ok(false) | Err(_) => return self.closed(),
                },
                // Lines that stay unread would hide the end behind them.
                () = read_closed(&self.stream), if !reading => return Gone::Closed,
            }
        }
    }

    /// Reads what is there; false at the end of the stream.
    fn read(&mut self) -> io::Result<bool> {
        let mut chunk = [0; CHUNK];
        match self.stream.try_read(&mut chunk) {
            Ok(0) => Ok(false),
            Ok(n) => {
                self.lines.extend(&chunk[..n]);
                Ok(true)
            }
            Err(error) if is_transient(&error) => Ok(true),
            Err(error) => Err(error),
        }
    }

    fn closed(&mut self) -> Gone {
        if self.lines.is_torn() {
            self.fail(None, Code::Protocol, "the last line has no newline and was ignored");
        }
        Gone::Closed
    }

    /// Passes a request on, or answers what is none.
    fn take(&mut self, line: Line) {
        self.unanswered += 1;
        let request = match line {
            Line::Whole(line) => Request::decode(&line),
            Line::TooLong => Err(Rejected::too_long()),
        };
        match request {
            Ok(Request { id, op }) => {
                self.forwarded.push(id);
                if self.driver.send(Command::Request { client: self.client, id, op }).is_err() {
                    self.answer_for_the_driver();
                }
            }
            Err(rejected) => {
                tracing::debug!(client = self.client, detail = rejected.message, "a line is not a valid request");
                self.fail(rejected.id, rejected.code, rejected.message);
            }
        }
    }

    /// The driver is gone: nobody else will answer.
    fn answer_for_the_driver(&mut self) {
        for id in std::mem::take(&mut self.forwarded) {
            self.fail(Some(id), Code::Unavailable, "the extension failed: see its log");
        }
    }

    fn fail(&self, id: Option<u64>, code: Code, message: impl Into<String>) {
        self.outbox.push(Reply::error(id, Failure::new(code, message)).encode());
    }

    /// Takes `line` and what waits behind it into the buffer.
    fn send(&mut self, line: String) {
        let mut next = Some(line);
        while let Some(line) = next {
            if is_reply(&line) {
                self.unanswered = self.unanswered.saturating_sub(1);
                if let Some(at) = self.forwarded.iter().position(|id| Some(*id) == reply_id(&line)) {
                    self.forwarded.swap_remove(at);
                }
            }
            self.output.buffer.extend_from_slice(line.as_bytes());
            next = if self.output.buffer.len() < CHUNK { self.output.outgoing.next_now() } else { None };
        }
    }

    /// Writes everything that is still said, up to the moment when nobody can say anything more.
    async fn flush(self, watch: &Watch) {
        let Self { stream, outbox, mut output, .. } = self;
        drop(outbox);
        let write_all = async {
            loop {
                while output.pending() {
                    stream.writable().await?;
                    output.write(&stream)?;
                }
                match output.outgoing.next().await {
                    Some(line) => output.buffer.extend_from_slice(line.as_bytes()),
                    None => return io::Result::Ok(()),
                }
            }
        };
        tokio::select! {
            biased;
            () = watch.dead() => {}
            _ = write_all => {}
        }
    }
}

impl Output {
    fn pending(&self) -> bool {
        self.written < self.buffer.len()
    }

    /// Writes as much as the client's buffer takes.
    fn write(&mut self, stream: &UnixStream) -> io::Result<()> {
        match stream.try_write(&self.buffer[self.written..]) {
            Ok(n) => self.written += n,
            Err(error) if is_transient(&error) => {}
            Err(error) => return Err(error),
        }
        if !self.pending() {
            self.buffer.clear();
            self.written = 0;
            if self.buffer.capacity() > 4 * CHUNK {
                self.buffer = Vec::new();
            }
        }
        Ok(())
    }
}

/// Resolves when the client has closed its side, even if lines from it are still unread.
async fn read_closed(stream: &UnixStream) {
    loop {
        // Out-of-band data is never sent here; of what this interest covers, the closing is left.
        match stream.ready(Interest::PRIORITY).await {
            Ok(ready) if !ready.is_read_closed() => tokio::task::yield_now().await,
            Ok(_) | Err(_) => return,
        }
    }
}

/// Has the client closed its side by now?
fn is_read_closed(stream: &UnixStream) -> bool {
    let mut polled = [PollFd::new(stream, PollFlags::RDHUP)];
    let closed = PollFlags::RDHUP | PollFlags::HUP;
    rustix::event::poll(&mut polled, Some(&Timespec::default())).is_ok() && polled[0].revents().intersects(closed)
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc;

    #[tokio::test]
    async fn a_panic_in_a_connections_task_ends_it_as_a_fault() {
        let (driver, mut commands) = mpsc::unbounded_channel();
        let (outbox, _outgoing) = outbox();
        let task = tokio::spawn(async move {
            let _presence = Presence::begin(7, driver, outbox);
            panic!("on purpose");
        });
        assert!(task.await.unwrap_err().is_panic());
        assert!(matches!(commands.recv().await, Some(Command::Open { client: 7, .. })));
        assert!(matches!(commands.recv().await, Some(Command::Close { client: 7, how: Gone::Faulted })));
        assert!(commands.recv().await.is_none());
    }

    #[tokio::test]
    async fn an_end_is_told_once() {
        let (driver, mut commands) = mpsc::unbounded_channel();
        let (outbox, _outgoing) = outbox();
        let mut presence = Presence::begin(7, driver, outbox);
        presence.end(Gone::Closed);
        drop(presence);
        assert!(matches!(commands.recv().await, Some(Command::Open { .. })));
        assert!(matches!(commands.recv().await, Some(Command::Close { how: Gone::Closed, .. })));
        assert!(commands.recv().await.is_none());
    }
}
