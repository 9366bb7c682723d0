//! Variables of workloads: which values may be given away.

use super::gather::Gathered;
use crate::config::{self, Declared};
use crate::store::record::{PointIds, Record};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Beginnings of names whose values say how a number came about, and nothing of people.
const PUBLIC: [&str; 21] = [
    "OMP_",
    "GOMP_",
    "KMP_",
    "GGML_",
    "LLAMA_",
    "ORT_",
    "MKL_",
    "OPENBLAS_",
    "BLIS_",
    "VECLIB_",
    "RAYON_",
    "RTEN_",
    "NUMEXPR_",
    "TF_",
    "TFLITE_",
    "CUDA_",
    "LC_",
    "MALLOC_",
    "GLIBC_",
    "XNN",
    "ISOTHERM_",
];
/// Whole names of such.
const PUBLIC_NAMES: [&str; 8] = ["LANG", "LANGUAGE", "TZ", "PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "LD_PRELOAD"];
/// Parts of names that say of a value that it is none of anybody's business, whatever stands in front.
const NEVER: [&str; 7] = ["KEY", "TOKEN", "SECRET", "PASS", "CRED", "AUTH", "COOKIE"];
/// Shorter values are found in everything.
const SEARCHED_CHARS: usize = 6;
/// A whole number of so many digits is searched for, too.
const NUMBER_DIGITS: usize = 8;

/// Directories that every machine has.
const SYSTEM: [&str; 7] = ["/usr", "/bin", "/lib", "/etc", "/proc", "/sys", "/dev"];

/// May the value of a variable of this name be given away?
pub fn is_public(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    !NEVER.iter().any(|part| upper.contains(part)) && (PUBLIC_NAMES.contains(&name) || PUBLIC.iter().any(|start| name.starts_with(start)))
}

/// A variable that is an axis keeps its values: they are what tells rows apart.
pub fn is_axis(name: &str, point: &PointIds) -> bool {
    point.axes.contains_key(&format!("env.{name}"))
}

/// Private variables of all records.
#[derive(Debug, Default)]
pub struct Private {
    /// name → values.
    values: BTreeMap<String, BTreeSet<String>>,
    /// Texts that stand for themselves elsewhere: values of axes, names of models, metrics and devices.
    public: BTreeSet<String>,
}

impl Private {
    pub fn of(gathered: &Gathered) -> Private {
        let mut private = Private::default();
        for (_, record) in &gathered.records {
            for (name, value) in declared(record).filter(|(name, _)| !is_public(name) && !is_axis(name, &record.ids.point)) {
                private.values.entry(name.to_owned()).or_default().insert(value.to_owned());
            }
            let point = &record.ids.point;
            private.public.extend(point.axes.values().map(ToString::to_string));
            private.public.extend(record.metrics.keys().cloned());
            private.public.extend([point.device.clone(), point.backend.clone(), record.ids.campaign.clone()]);
            private.public.extend(record.workload.model.iter().flat_map(|model| [Some(model.id.clone()), model.quantization.clone()]).flatten());
        }
        // Of what has not run yet, too. Placeholders and variables of variables are no values.
        for declared in gathered.campaign.iter().chain(gathered.used.iter().map(|(_, text)| text)).filter_map(|text| config::variables_of(text)) {
            for Declared { name, value, .. } in declared.into_iter().filter(|one| !is_public(&one.name)) {
                let values = private.values.entry(name).or_default();
                values.extend((!value.contains(['{', '$'])).then_some(value));
            }
        }
        private
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// Values that are looked for in all texts.
    pub fn searched(&self) -> impl Iterator<Item = &str> {
        // Of several lines each one too: a campaign file indents them.
        let of_names = self.values.iter().filter(|(name, _)| *name != "USER").flat_map(|(_, values)| values);
        let mut texts: Vec<&str> = of_names
            .filter(|value| !self.public.contains(*value))
            .flat_map(|value| std::iter::once(value.trim()).chain(value.lines().map(str::trim)))
            .collect();
        // `${secret:NAME}` stands where a secret was, `<redacted>` in a copy: they are none themselves.
        let stands_for_one = |text: &str| text.starts_with("${secret:") || text.starts_with("<redacted");
        let tells_nothing = |text: &str| stands_for_one(text) || SYSTEM.iter().any(|top| Path::new(text).starts_with(top));
        texts.retain(|text| text.chars().count() >= SEARCHED_CHARS && !is_a_common_number(text) && !tells_nothing(text));
        texts.sort_unstable();
        texts.dedup();
        texts.into_iter()
    }
}

/// Numbers are everywhere, and a number that somebody goes by has many digits.
fn is_a_common_number(text: &str) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    text.parse::<f64>().is_ok() && (digits < NUMBER_DIGITS || digits < text.len())
}

/// Variables with their values, as executed and as the campaign declares them.
fn declared(record: &Record) -> impl Iterator<Item = (&str, &str)> {
    let executed = record.backend.executed.iter().flat_map(|executed| executed.env.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    let spec = record.ids.identity.spec.get("env").and_then(serde_json::Value::as_object);
    executed.chain(spec.into_iter().flatten().filter_map(|(name, value)| Some((name.as_str(), value.as_str()?))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_public_by_its_name_unless_that_says_secret() {
        let public = ["OMP_NUM_THREADS", "LANG", "LC_ALL", "TZ", "PATH", "GGML_CUDA_ENABLE", "ORT_LOGGING"];
        assert!(public.iter().all(|name| is_public(name)));
        let private = ["USER", "HF_TOKEN", "LLAMA_API_KEY", "ORT_AUTH", "MODE", "SSH_AUTH_SOCK", "AWS_SECRET"];
        assert!(!private.iter().any(|name| is_public(name)));
    }
}
