//! What points are called: takes points, gives the keys and directories that tell them apart. Must not know how they were made, nor
//! anything of their content, which is `identity`'s.

use super::point::{Point, Work};
use crate::config::model::{AxisValue, Settings};
use crate::store::record::PointIds;
use indexmap::IndexMap;
use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Longest directory name of a point, bytes, without its identity.
const MOST_SLUG_BYTES: usize = 80;

/// Says which place of the sweep a point is, whatever its identity: two records with one key answer the same job in turn.
#[must_use]
pub fn job_key(ids: &PointIds) -> String {
    let mut axes: Vec<_> = ids.axes.iter().collect();
    axes.sort_by_key(|(name, _)| *name);
    format!("{}\u{0}{}\u{0}{axes:?}", ids.device, ids.backend)
}

/// Which place of the sweep it is: equal for points with the same device, backend and axes, in whatever order; `all`: with those that
/// stand in the environment and on the command line as well.
pub(super) fn place(ids: &PointIds, all: bool) -> u64 {
    let elsewhere = |name: &str| !all && (name.starts_with("env.") || name.starts_with("flags."));
    let hash = |(name, value): (&String, &AxisValue)| {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        match value {
            AxisValue::Bool(value) => (0, value).hash(&mut hasher),
            AxisValue::Int(value) => (1, value).hash(&mut hasher),
            AxisValue::Float(value) => (2, value.to_bits()).hash(&mut hasher),
            AxisValue::Text(value) => (3, value).hash(&mut hasher),
            AxisValue::List(value) => (4, value).hash(&mut hasher),
        }
        hasher.finish()
    };
    let axes = ids.axes.iter().filter(|(name, _)| !elsewhere(name)).map(hash).fold(0, u64::wrapping_add);
    let mut hasher = DefaultHasher::new();
    (&ids.device, &ids.backend, axes).hash(&mut hasher);
    hasher.finish()
}

/// Points of several blocks with the same axes differ in something that isn't one: make what differs visible as `env.NAME` or `block.…`,
/// so that tables can tell them apart. It is no part of their identity, where it stands in its own field.
pub(super) fn distinguish(points: &mut [Point]) {
    let mut groups: IndexMap<u64, Vec<usize>> = IndexMap::new();
    for (i, point) in points.iter().enumerate().filter(|(_, point)| point.same_as.is_none()) {
        groups.entry(place(&point.ids, true)).or_default().push(i);
    }
    for group in groups.into_values().filter(|group| group.len() > 1) {
        let names: BTreeSet<String> = group.iter().flat_map(|&i| points[i].env.keys().cloned()).collect();
        let mut differing: IndexMap<String, Vec<AxisValue>> = IndexMap::new();
        let mut offer = |name: String, values: Vec<AxisValue>| {
            if values.iter().any(|v| *v != values[0]) {
                differing.insert(name, values);
            }
        };
        for name in names {
            let text = |&i: &usize| AxisValue::Text(points[i].env.get(&name).cloned().unwrap_or_default());
            offer(format!("env.{name}"), group.iter().map(text).collect());
        }
        let number = |f: fn(&Settings) -> u32| group.iter().map(|&i| AxisValue::Int(f(&points[i].settings).into())).collect();
        offer("block.warmup".into(), number(|s| s.warmup));
        offer("block.rounds".into(), number(|s| s.rounds));
        offer("block.iterations".into(), number(|s| s.iterations));
        let prepare = |&i: &usize| AxisValue::Text(points[i].settings.prepare.to_string());
        offer("block.prepare".into(), group.iter().map(prepare).collect());
        let argv = |&i: &usize| match &points[i].work {
            Work::Builtin { .. } | Work::Later => AxisValue::Text(String::new()),
            Work::Command(work) => AxisValue::Text(work.argv.join(" ")),
            Work::LlamaBench(work) => AxisValue::Text(work.flags.join(" ")),
            Work::LlamaServer(work) => AxisValue::Text(work.flags.join(" ")),
        };
        offer("block.argv".into(), group.iter().map(argv).collect());
        let tuples: BTreeSet<String> = (0..group.len()).map(|k| format!("{:?}", differing.values().map(|v| &v[k]).collect::<Vec<_>>())).collect();
        if tuples.len() < group.len() {
            differing.insert("block.number".into(), group.iter().map(|&i| AxisValue::Int(points[i].block as i64 + 1)).collect());
        }
        for (name, values) in differing {
            for (&i, value) in group.iter().zip(values) {
                points[i].ids.axes.insert(name.clone(), value);
                points[i].swept.push(name.clone());
            }
        }
    }
}

/// For people: `model=qwen-threads=4` in `[a-z0-9._=-]`, at most 80 bytes.
#[must_use]
pub fn slug(swept: &[String], axes: &IndexMap<String, AxisValue>, backend: &str) -> String {
    let mut text: String = swept
        .iter()
        .filter_map(|name| Some(format!("{}={}", name.strip_prefix("env.").unwrap_or(name), axes.get(name)?)))
        .collect::<Vec<_>>()
        .join("-");
    if text.is_empty() {
        backend.clone_into(&mut text);
    }
    let mut slug = in_slug(&text);
    slug.truncate(MOST_SLUG_BYTES);
    if slug.starts_with('.') {
        slug.replace_range(..1, "_");
    }
    slug
}

/// A text in the letters of a slug.
#[must_use]
pub fn in_slug(text: &str) -> String {
    let safe = |c: char| match c.to_ascii_lowercase() {
        c @ ('a'..='z' | '0'..='9' | '.' | '_' | '=' | '-') => c,
        _ => '_',
    };
    text.chars().map(safe).collect()
}

/// Name every point's directory; where two names come out equal, the later one gets a number.
pub(super) fn distinguish_slugs(points: &mut [Point]) {
    for point in points.iter_mut() {
        point.ids.slug = slug(&point.swept, &point.ids.axes, &point.ids.backend);
    }
    let mut count: HashMap<(String, String), usize> = HashMap::new();
    for point in points.iter_mut().filter(|point| point.same_as.is_none()) {
        let n = count.entry((point.ids.device.clone(), point.ids.slug.clone())).or_insert(0);
        *n += 1;
        if *n > 1 {
            let suffix = format!("-{n}");
            point.ids.slug.truncate(MOST_SLUG_BYTES - suffix.len());
            point.ids.slug.push_str(&suffix);
        }
    }
}
