//! Cuts a byte stream into lines with bounded memory.

use leasekeeper_wire::MAX_LINE;

/// What stands in the stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A line without its newline.
    Whole(Vec<u8>),
    /// A line longer than [`MAX_LINE`]; it is told once and skipped up to its newline.
    TooLong,
}

/// Bytes that have been read and are not yet a line: never more than one line and one chunk.
#[derive(Debug, Default)]
pub(super) struct LineBuffer {
    bytes: Vec<u8>,
    /// Where the next line starts.
    start: usize,
    /// Up to where a newline was searched, so that no byte is searched twice.
    searched: usize,
    /// In the middle of a line that was too long.
    skipping: bool,
}

impl LineBuffer {
    /// Adds what was read. Call it only when [`Self::next`] has nothing left, or memory is not bounded.
    pub(super) fn extend(&mut self, chunk: &[u8]) {
        self.bytes.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        // A long line is rare: what it took is given back.
        if self.bytes.is_empty() && self.bytes.capacity() > MAX_LINE / 4 {
            self.bytes = Vec::new();
        }
        self.bytes.extend_from_slice(chunk);
    }

    /// The next line, if it is whole or too long already.
    pub(super) fn next(&mut self) -> Option<Line> {
        while let Some(at) = self.bytes[self.searched..].iter().position(|byte| *byte == b'\n') {
            let (start, end) = (self.start, self.searched + at);
            self.start = end + 1;
            self.searched = self.start;
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            let fits = end - start < MAX_LINE;
            return Some(if fits { Line::Whole(self.bytes[start..end].to_vec()) } else { Line::TooLong });
        }
        self.searched = self.bytes.len();
        let too_long = !self.skipping && self.searched - self.start >= MAX_LINE;
        self.skipping |= too_long;
        if self.skipping {
            self.start = self.searched;
        }
        too_long.then_some(Line::TooLong)
    }

    /// Does the stream end in the middle of a line?
    pub(super) fn is_torn(&self) -> bool {
        self.start < self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> Option<Line> {
        Some(Line::Whole(text.into()))
    }

    #[test]
    fn lines_are_cut_wherever_the_chunks_are() {
        for size in 1..12 {
            let mut buffer = LineBuffer::default();
            let mut lines = Vec::new();
            for chunk in b"one\n\ntwo\r\nthree".chunks(size) {
                buffer.extend(chunk);
                lines.extend(std::iter::from_fn(|| buffer.next()));
            }
            let expected: Vec<_> = ["one", "", "two\r"].map(|line| Line::Whole(line.into())).into();
            assert_eq!(lines, expected, "chunks of {size}");
            assert!(buffer.is_torn());
            buffer.extend(b"\n");
            assert_eq!(buffer.next(), whole("three"));
            assert!(!buffer.is_torn());
        }
    }

    #[test]
    fn the_longest_line_counts_its_newline() {
        let mut buffer = LineBuffer::default();
        let longest = "x".repeat(MAX_LINE - 1);
        buffer.extend(longest.as_bytes());
        assert_eq!(buffer.next(), None);
        buffer.extend(b"\nnext\n");
        assert_eq!(buffer.next(), whole(&longest));
        assert_eq!(buffer.next(), whole("next"));
        // One more, its newline in the same chunk or in a later one.
        buffer.extend(format!("{longest}x\nnext\n").as_bytes());
        assert_eq!((buffer.next(), buffer.next()), (Some(Line::TooLong), whole("next")));
        buffer.extend(format!("{longest}x").as_bytes());
        assert_eq!((buffer.next(), buffer.next()), (Some(Line::TooLong), None));
        buffer.extend(b"tail\nnext\n");
        assert_eq!((buffer.next(), buffer.next()), (whole("next"), None));
    }

    #[test]
    fn an_endless_line_is_told_once_and_takes_no_memory() {
        let mut buffer = LineBuffer::default();
        let chunk = [b'x'; 8 * 1024];
        let mut told = 0;
        for _ in 0..10_000 {
            buffer.extend(&chunk);
            told += std::iter::from_fn(|| buffer.next()).filter(|line| *line == Line::TooLong).count();
            assert!(buffer.bytes.capacity() <= 2 * MAX_LINE, "{} bytes", buffer.bytes.capacity());
        }
        assert_eq!(told, 1);
        buffer.extend(b"\nnext\n");
        assert_eq!(buffer.next(), whole("next"));
    }
}
