//! The end of what a command writes, while all of it goes on to standard output.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Bytes that are kept.
const KEPT: usize = 64 << 10;
/// How long to wait for the end of the output after the command's: all who could write are gone by then.
const PATIENCE: Duration = Duration::from_secs(1);

/// A thread that copies, and what it keeps.
#[derive(Debug)]
pub(super) struct Tail {
    kept: Arc<Mutex<VecDeque<u8>>>,
    ended: oneshot::Receiver<()>,
}

impl Tail {
    /// Copies `from` to `to` until either ends. With `to` gone `from` is closed: whoever writes gets to know.
    pub(super) fn copy(
        mut from: impl Read + Send + 'static,
        mut to: impl Write + Send + 'static,
    ) -> Tail {
        let kept = Arc::new(Mutex::new(VecDeque::new()));
        let (end, ended) = oneshot::channel();
        let mine = Arc::clone(&kept);
        std::thread::spawn(move || {
            let mut buffer = [0; 16 << 10];
            while let Ok(count) = from.read(&mut buffer) {
                let read = buffer.get(..count).unwrap_or_default();
                keep(&mut mine.lock(), read);
                if read.is_empty() || to.write_all(read).and_then(|()| to.flush()).is_err() {
                    break;
                }
            }
            let _ = end.send(());
        });
        Tail { kept, ended }
    }

    /// What was written last, and its content type.
    pub(super) async fn end(self) -> (&'static str, Vec<u8>) {
        let _ = timeout(PATIENCE, self.ended).await;
        let bytes = Vec::from(std::mem::take(&mut *self.kept.lock()));
        match std::str::from_utf8(&bytes) {
            Ok(_) => ("text/plain; charset=utf-8", bytes),
            Err(_) => ("application/octet-stream", bytes),
        }
    }
}

fn keep(kept: &mut VecDeque<u8>, read: &[u8]) {
    let surplus = (kept.len() + read.len()).saturating_sub(KEPT);
    kept.drain(..surplus.min(kept.len()));
    kept.extend(read);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_end_is_kept_and_all_of_it_goes_on() {
        let written: Vec<u8> = (0..KEPT * 3 + 5).map(|at| b'a' + (at % 23) as u8).collect();
        let tail = Tail::copy(std::io::Cursor::new(written.clone()), std::io::sink());
        let (content_type, kept) = tail.end().await;
        assert_eq!(content_type, "text/plain; charset=utf-8");
        assert_eq!(kept, written[written.len() - KEPT..]);
    }

    #[tokio::test]
    async fn bytes_that_are_no_text_are_called_so() {
        let tail = Tail::copy(&b"\xff"[..], std::io::sink());
        assert_eq!(tail.end().await, ("application/octet-stream", vec![0xff]));
    }
}
