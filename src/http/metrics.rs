//! The server's figures: for Prometheus as text, for people as one JSON document.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::Face;
use super::json::Object;
use super::problem::Refusal;
use crate::engine::{Counted, Family, Figure, Kind};

/// What the text is: OpenMetrics 1.0, which Prometheus reads too.
pub(super) const TEXT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The limits of this face: each is counted when somebody meets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// The bytes of a head.
    Head,
    /// The time for a head.
    HeadTime,
    /// The bytes of a body.
    Body,
    /// The time for a body, shorter while others wait for its memory.
    BodyTime,
    /// Bytes in flight: a body waited for room for too long.
    BodyRoom,
    /// The time for which a client takes nothing of its answer.
    WriteTime,
    /// Readers of the audit trail.
    Readers,
}

impl Limit {
    const NAMES: [&str; 7] = [
        "head",
        "head_time",
        "body",
        "body_time",
        "body_room",
        "write_time",
        "readers",
    ];
}

/// How often each limit was met.
#[derive(Debug, Default)]
pub(super) struct Met([AtomicU64; Limit::NAMES.len()]);

impl Met {
    pub(super) fn count(&self, limit: Limit) {
        if let Some(counter) = self.0.get(limit as usize) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What the server knows and the engine does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// Connections that were refused because there were too many: of HTTP, of the Redis protocol.
    pub refused: (u64, u64),
    /// Redis connections that were let go while bytes in flight were short: their command came too slowly, or they took
    /// nothing of their replies.
    pub let_go: (u64, u64),
    /// Connections, of all faces.
    pub connections: u64,
    /// Bytes of requests and answers on their way (SPEC 10).
    pub in_flight: u64,
}

/// All figures.
pub(super) async fn figures(face: &Face) -> Result<Vec<Family>, Refusal> {
    let mut all = face.engine.figures().await?;
    let live = face.live.get().map(|live| live());
    let told = live.unwrap_or_default();
    let met = face.met.0.iter().map(|count| count.load(Ordering::Relaxed));
    let http = Limit::NAMES.into_iter().zip(met);
    let http = http.chain([("connections", told.refused.0)]);
    let redis = [
        ("connections", told.refused.1),
        ("body_time", told.let_go.0),
        ("write_time", told.let_go.1),
    ];
    let all_met = (http.map(|it| ("http", it))).chain(redis.map(|it| ("redis", it)));
    all.push(Family::of(
        "limits_met",
        "How often a connection met a limit, by face and limit",
        Kind::Counter,
        all_met
            .map(|(face, (limit, count))| {
                Family::sample(&[("face", face), ("limit", limit)], count)
            })
            .collect(),
    ));
    if let Some(live) = live {
        let gauge = |name, help, value| Family::one(name, help, Kind::Gauge, value);
        all.push(gauge(
            "connections",
            "Connections of all faces",
            live.connections,
        ));
        all.push(gauge(
            "in_flight_bytes",
            "Bytes of requests and answers on their way",
            live.in_flight,
        ));
    }
    Ok(all)
}

/// Figures that are handed to the encoder as they are: what is counted is not the encoder's.
#[derive(Debug)]
struct Families(Vec<Family>);

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        for family in &self.0 {
            let kind = match family.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            let mut metric = encoder.encode_descriptor(family.name, family.help, None, kind)?;
            for sample in &family.samples {
                let mut metric = metric.encode_family(&sample.labels)?;
                match &sample.value {
                    Figure::Number(value) if family.kind == Kind::Counter => {
                        metric.encode_counter::<NoLabelSet, f64, f64>(value, None)?;
                    }
                    Figure::Number(value) => metric.encode_gauge(value)?,
                    Figure::Spread(bounds, counted) => {
                        let bounds = bounds.iter().copied().chain([f64::MAX]);
                        let buckets: Vec<_> = bounds.zip(counted.buckets).collect();
                        metric.encode_histogram::<NoLabelSet>(
                            counted.sum,
                            counted.count(),
                            &buckets,
                            None,
                        )?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The figures as a scraper reads them.
pub(super) fn openmetrics(families: Vec<Family>) -> Vec<u8> {
    let mut registry = Registry::with_prefix("onced");
    registry.register_collector(Box::new(Families(families)));
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = text::encode(&mut out, &registry);
    out.into_bytes()
}

/// The figures for people: a member for each name, a number or a list by labels.
pub(super) fn document(families: &[Family]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut object = Object::begin(&mut out);
    for family in families {
        object.raw(family.name, |out| match family.samples.as_slice() {
            [one] if one.labels.is_empty() => figure(out, &one.value),
            all => {
                out.push(b'[');
                for (at, sample) in all.iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    let mut object = Object::begin(out);
                    for (name, text) in &sample.labels {
                        object.text(name, text);
                    }
                    object.raw("value", |out| figure(out, &sample.value));
                    object.end();
                }
                out.push(b']');
            }
        });
    }
    object.end();
    out
}

fn figure(out: &mut Vec<u8>, value: &Figure) {
    match value {
        Figure::Number(value) => number(out, *value),
        Figure::Spread(bounds, counted) => {
            let mut object = Object::begin(out);
            object.number("count", counted.count());
            object.raw("sum", |out| number(out, counted.sum));
            for (name, share) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)] {
                object.raw(name, |out| match quantile(bounds, counted, share) {
                    Some(bound) => number(out, bound),
                    None => out.extend_from_slice(b"null"),
                });
            }
            object.end();
        }
    }
}

/// The upper bound of the bucket in which that share of the values is reached. `None`: there are no values, or it is
/// beyond the last bound.
fn quantile(bounds: &[f64; 16], counted: &Counted, share: f64) -> Option<f64> {
    let wanted = (counted.count() as f64 * share).ceil().max(1.0) as u64;
    let mut sum = 0_u64;
    let at = counted.buckets.iter().position(|count| {
        sum = sum.saturating_add(*count);
        sum >= wanted
    })?;
    bounds.get(at).copied()
}

fn number(out: &mut Vec<u8>, value: f64) {
    // Sums and counts are finite; whole ones read best without a point.
    let text = match value.fract() == 0.0 {
        true => format!("{value:.0}"),
        false => format!("{value}"),
    };
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_the_bounds_that_enough_values_stay_under() {
        const BOUNDS: [f64; 16] = [
            1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12., 13., 14., 15., 16.,
        ];
        let mut counted = Counted::default();
        assert_eq!(quantile(&BOUNDS, &counted, 0.5), None);
        counted.buckets[0] = 98;
        counted.buckets[3] = 1;
        counted.buckets[16] = 1;
        let of = |share| quantile(&BOUNDS, &counted, share);
        assert_eq!((of(0.5), of(0.99), of(0.999)), (Some(1.), Some(4.), None));
    }
}
