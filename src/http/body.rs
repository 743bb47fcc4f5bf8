//! Request bodies: read whole, bounded in size, memory and time.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Body;
use hyper::header::{CONTENT_ENCODING, EXPECT, HeaderMap, TRANSFER_ENCODING};
use tokio::sync::{Semaphore, SemaphorePermit};

/// A buffer never begins larger than this: an announced length alone costs the client nothing.
const FIRST_BUFFER: usize = 64 * 1024;
/// How much of an unwanted body is read away so that the connection can go on.
const DISCARD: u64 = 64 * 1024;
/// How long the rest of an unwanted body may take.
const DISCARD_TIME: Duration = Duration::from_secs(1);

/// A body of at most so many bytes waits for no room where there is none: small requests never wait for large ones.
/// At its most that is as much for each connection.
const SMALL: usize = 4 * 1024;
/// While bytes in flight are short: how often it is looked whether a part of a request came on, and how often in a row
/// it may not have. Its memory is what others wait for.
pub const QUIET: (Duration, u32) = (Duration::from_secs(1), 2);
/// While bytes in flight are short: how long a request may take to arrive, however it trickles.
pub const SLOW: Duration = Duration::from_secs(5);

/// Why a body was not taken. Nothing was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// More bytes than the limit; found by `Content-Length`, or as soon as they are there.
    TooLarge,
    /// It is encoded, and what is compared and kept are plain bytes.
    Encoded,
    /// It did not arrive in time.
    Slow,
    /// The client stopped in the middle.
    Broken,
    /// Bodies of other requests fill the memory for them (SPEC 10), and did so for too long.
    NoRoom,
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BodyError::TooLarge => "the body is too large",
            BodyError::Encoded => {
                "the body has a Content-Encoding, or a Transfer-Encoding other than chunked; send the plain \
                 bytes, or leave the header out and say what they are in Content-Type"
            }
            BodyError::Slow => "the body did not arrive in time; send it again",
            BodyError::Broken => "the body ended early or was malformed; send it again",
            BodyError::NoRoom => {
                "too many large bodies are on their way at once; try again, or send fewer at a time"
            }
        })
    }
}

impl std::error::Error for BodyError {}

/// A body, and the room it takes until the answer is there.
pub type Taken<'r> = (Bytes, Option<SemaphorePermit<'r>>);

/// The body of a request, and whether all of it was read.
#[derive(Debug)]
pub struct Upload<B> {
    body: B,
    ended: bool,
    /// Waited for long enough.
    given_up: bool,
}

impl<B: Body<Data = Bytes> + Unpin> Upload<B> {
    /// A body of which nothing was read.
    #[must_use]
    pub fn new(body: B) -> Upload<B> {
        let ended = body.is_end_stream();
        Upload {
            body,
            ended,
            given_up: false,
        }
    }

    /// Reads at most `limit` bytes within `time`. `room` holds a permit for each byte on its way: all that a
    /// body may need is taken at once, so that bodies never wait for each other half read. While others wait, one that
    /// does not come on is let go.
    ///
    /// # Errors
    /// [`BodyError`]; the body may not have been read to its end.
    pub async fn read<'r>(
        &mut self,
        headers: &HeaderMap,
        limit: usize,
        time: Duration,
        room: &'r Semaphore,
    ) -> Result<Taken<'r>, BodyError> {
        if self.ended {
            return Ok((Bytes::new(), None));
        }
        let plain = |value: &[u8]| value.eq_ignore_ascii_case(b"identity");
        let mut encodings = headers.get_all(CONTENT_ENCODING).iter();
        // Hyper undoes `chunked` alone, and hands on what other codings are under it.
        let chunked = |value: &[u8]| value.eq_ignore_ascii_case(b"chunked");
        let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
        if !encodings.all(|value| plain(value.as_bytes()))
            || !codings.all(|value| chunked(value.as_bytes()))
        {
            return Err(BodyError::Encoded);
        }
        let hint = self.body.size_hint();
        let announced = usize::try_from(hint.lower()).unwrap_or(usize::MAX);
        if announced > limit {
            return Err(BodyError::TooLarge);
        }
        let need = if hint.exact().is_some() {
            announced
        } else {
            limit
        };
        let came = AtomicUsize::new(0);
        let permit = taken(room, need, time).await?;
        let holds = permit.is_some();
        let gathered = tokio::select! {
            biased;
            bytes = tokio::time::timeout(time, self.gather(limit, announced, &came)) => bytes.ok(),
            () = held_up(holds, room, &came) => None,
        };
        match gathered {
            Some(bytes) => Ok((bytes?, permit)),
            None => {
                self.given_up = true;
                Err(BodyError::Slow)
            }
        }
    }

    /// Reads away what is left of a body nobody wants, if that is known to be little and comes soon: the
    /// answer waits for it. Returns whether all was read, so that the connection can go on.
    pub async fn discard(&mut self, headers: &HeaderMap) -> bool {
        if self.ended {
            return true;
        }
        // A client that waits for "go on" must not be told to by reading.
        let little = self
            .body
            .size_hint()
            .exact()
            .is_some_and(|left| left <= DISCARD);
        if self.given_up || !little || headers.contains_key(EXPECT) {
            return false;
        }
        let all = async {
            while let Some(data) = self.next().await {
                data?;
            }
            Ok::<_, BodyError>(())
        };
        matches!(tokio::time::timeout(DISCARD_TIME, all).await, Ok(Ok(())))
    }

    /// Bytes of their own, of exactly their length: a record must not keep a connection's read buffer alive.
    async fn gather(
        &mut self,
        limit: usize,
        announced: usize,
        came: &AtomicUsize,
    ) -> Result<Bytes, BodyError> {
        let mut out = Vec::with_capacity(announced.min(FIRST_BUFFER));
        while let Some(data) = self.next().await {
            let data = data?;
            if data.len() > limit.saturating_sub(out.len()) {
                return Err(BodyError::TooLarge);
            }
            out.extend_from_slice(&data);
            came.store(out.len(), Ordering::Relaxed);
        }
        Ok(out.into_boxed_slice().into())
    }

    /// The next bytes; trailers mean nothing here.
    async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        while !self.ended {
            let frame = self.body.frame().await;
            self.ended = frame.is_none() || self.body.is_end_stream();
            match frame?.map(|frame| frame.into_data()) {
                Ok(Ok(data)) => return Some(Ok(data)),
                Ok(Err(_)) => {}
                Err(_) => return Some(Err(BodyError::Broken)),
            }
        }
        None
    }
}

/// Room for `need` bytes; `None` where none is needed.
async fn taken(
    room: &Semaphore,
    need: usize,
    time: Duration,
) -> Result<Option<SemaphorePermit<'_>>, BodyError> {
    let permits = u32::try_from(need).unwrap_or(u32::MAX);
    if need <= SMALL {
        return Ok(room.try_acquire_many(permits).ok());
    }
    match tokio::time::timeout(time, room.acquire_many(permits)).await {
        // The semaphore is never closed; if it were, there would be nothing to wait for.
        Ok(permit) => Ok(permit.ok()),
        Err(_) => Err(BodyError::NoRoom),
    }
}

/// Returns when a body that holds room has kept others waiting for it too long: nothing of it came, or it trickles.
/// Whoever waits leaves no permit free, so that is what is looked at.
async fn held_up(holds: bool, room: &Semaphore, came: &AtomicUsize) {
    if !holds {
        return std::future::pending().await;
    }
    let (mut before, mut quiet, mut short) = (0, 0, Duration::ZERO);
    while quiet < QUIET.1 && short < SLOW {
        tokio::time::sleep(QUIET.0).await;
        let now = came.load(Ordering::Relaxed);
        if room.available_permits() > 0 {
            (quiet, short) = (0, Duration::ZERO);
        } else {
            quiet = if now == before { quiet + 1 } else { 0 };
            short = short.saturating_add(QUIET.0);
        }
        before = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Full;
    use hyper::body::Frame;
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    /// A chunked body; after its chunks it ends, or hangs.
    struct Chunks(VecDeque<&'static [u8]>, bool);

    impl Body for Chunks {
        type Data = Bytes;
        type Error = Infallible;
        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            match self.0.pop_front() {
                Some(chunk) => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(chunk))))),
                None if self.1 => Poll::Pending,
                None => Poll::Ready(None),
            }
        }
    }

    const TIME: Duration = Duration::from_millis(20);

    /// What is taken of a body, and whether its end was seen.
    async fn take<B>(body: B, limit: usize) -> (Result<Bytes, BodyError>, bool)
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let room = Semaphore::new(100);
        let mut upload = Upload::new(body);
        let taken = upload.read(&HeaderMap::new(), limit, TIME, &room).await;
        (taken.map(|taken| taken.0), upload.ended)
    }

    #[tokio::test]
    async fn a_body_up_to_the_limit_is_read_whole() {
        for size in [0, 1, 9, 10] {
            let bytes = Bytes::from(vec![b'x'; size]);
            let taken = take(Full::new(bytes.clone()), 10).await;
            assert_eq!(taken, (Ok(bytes), true));
        }
        let chunks = Chunks([&b"ab"[..], b"", b"cd"].into(), false);
        assert_eq!(take(chunks, 4).await, (Ok("abcd".into()), true));
    }

    #[tokio::test]
    async fn more_than_the_limit_is_refused_by_its_announcement_or_as_soon_as_it_is_there() {
        let too_large = (Err(BodyError::TooLarge), false);
        let announced = Full::new(Bytes::from_static(b"12345678901"));
        assert_eq!(take(announced, 10).await, too_large);
        // The rest never comes: the refusal does not wait for it.
        let chunks = Chunks([&b"123456"[..], b"7890", b"1"].into(), true);
        assert_eq!(take(chunks, 10).await, too_large);
    }

    #[tokio::test]
    async fn a_body_that_does_not_come_is_given_up() {
        let hangs = Chunks([&b"12"[..]].into(), true);
        assert_eq!(take(hangs, 10).await, (Err(BodyError::Slow), false));
    }

    #[tokio::test]
    async fn bodies_wait_for_room_and_give_it_back_and_small_ones_do_not_wait() {
        let room = Semaphore::new(10_000);
        let headers = HeaderMap::new();
        // Of unknown length, so it may need all its limit.
        let mut first = Upload::new(Chunks([&b"12"[..]].into(), false));
        let held = first.read(&headers, 8000, TIME, &room).await.unwrap();
        let large = Full::new(Bytes::from(vec![0; SMALL + 1]));
        let mut second = Upload::new(large);
        let refused = second.read(&headers, 8000, TIME, &room).await;
        assert_eq!(refused.map(|_| ()), Err(BodyError::NoRoom));
        let small = Full::new(Bytes::from(vec![0; SMALL]));
        let taken = Upload::new(small).read(&headers, 8000, TIME, &room).await;
        assert!(matches!(taken, Ok((_, None))));
        drop(held);
        assert!(second.read(&headers, 8000, TIME, &room).await.is_ok());
        assert_eq!(room.available_permits(), 10_000);
    }

    #[tokio::test(start_paused = true)]
    async fn who_holds_room_that_others_wait_for_and_sends_nothing_is_let_go() {
        const LONG: Duration = Duration::from_secs(30);
        let headers = HeaderMap::new();
        let large = || Full::new(Bytes::from(vec![0; SMALL + 1]));
        // (whether somebody waits, when a body that stalls is given up)
        // Something came in the first second.
        for (waits, expected) in [(true, Duration::from_secs(3)), (false, LONG)] {
            let room = Semaphore::new(10_000);
            let begun = tokio::time::Instant::now();
            let stalled = async {
                let mut upload = Upload::new(Chunks([&b"12"[..]].into(), true));
                let read = upload.read(&headers, 8000, LONG, &room).await;
                assert_eq!(read.map(|_| ()), Err(BodyError::Slow));
                begun.elapsed()
            };
            let healthy = async {
                if waits {
                    tokio::task::yield_now().await;
                    let mut upload = Upload::new(large());
                    assert!(upload.read(&headers, 8000, LONG, &room).await.is_ok());
                }
            };
            let (gave_up, ()) = tokio::join!(stalled, healthy);
            assert_eq!(gave_up.as_secs(), expected.as_secs(), "{waits}");
        }
    }

    #[tokio::test]
    async fn an_encoded_body_is_refused_unread() {
        let table: &[(&[&str], bool)] = &[
            (&["identity"], true),
            (&["Identity", "identity"], true),
            (&["gzip"], false),
            (&["identity", "br"], false),
            (&["identity, gzip"], false),
            (&[""], false),
        ];
        for (values, fine) in table {
            let mut headers = HeaderMap::new();
            for value in *values {
                headers.append(CONTENT_ENCODING, value.parse().unwrap());
            }
            let room = Semaphore::new(100);
            let mut upload = Upload::new(Full::new(Bytes::from_static(b"x")));
            let taken = upload.read(&headers, 10, TIME, &room).await;
            let expected = if *fine {
                Ok(())
            } else {
                Err(BodyError::Encoded)
            };
            assert_eq!(taken.map(|_| ()), expected, "{values:?}");
        }
    }

    #[tokio::test]
    async fn only_a_small_rest_is_read_away() {
        let none = HeaderMap::new();
        let mut expects = HeaderMap::new();
        expects.insert(EXPECT, "100-continue".parse().unwrap());
        let full = |size| Upload::new(Full::new(Bytes::from(vec![0; size])));
        assert!(full(0).discard(&expects).await);
        assert!(full(1).discard(&none).await);
        assert!(!full(1).discard(&expects).await);
        assert!(full(64 * 1024).discard(&none).await);
        assert!(!full(64 * 1024 + 1).discard(&none).await);
        let chunked = Chunks([&b"x"[..]].into(), false);
        assert!(!Upload::new(chunked).discard(&none).await);
    }
}
