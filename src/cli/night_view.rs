//! A night as its journal tells it: takes events, gives how every device stands, in words; must not know files or a terminal.

use super::words::{duration, number, plain};
use indexmap::IndexMap;
use serde_json::Value;
use std::time::{Duration, SystemTime};

/// The last invocation of `run` that a journal tells of.
#[derive(Debug, Default)]
pub struct Watch {
    campaign: String,
    began: Option<SystemTime>,
    devices: IndexMap<String, Device>,
    /// Of the whole night, as it stood at its end.
    ended: Option<Value>,
    warnings: usize,
    stopping: Option<String>,
}

#[derive(Debug, Default)]
struct Device {
    to_run: usize,
    done: usize,
    failed: usize,
    degraded: usize,
    /// Of runs whose start was seen, to their record, and how many those were.
    spent: Duration,
    timed: u32,
    now: Now,
    last: Option<String>,
}

#[derive(Debug, Default)]
enum Now {
    /// Nothing is heard of it yet.
    #[default]
    Unheard,
    /// Reached, between two runs or waiting for its turn.
    There,
    Runs(Run),
    /// Gets a copy of a model.
    Copies {
        model: String,
        since: Option<SystemTime>,
    },
    Away {
        since: Option<SystemTime>,
        why: String,
        again_s: Option<u64>,
        /// What goes on there.
        run: Option<Run>,
    },
    Failed(String),
    Over,
}

#[derive(Debug, Clone)]
struct Run {
    what: String,
    since: Option<SystemTime>,
}

impl Watch {
    /// Is the night over?
    pub fn is_over(&self) -> bool {
        self.ended.is_some()
    }

    /// Take the next event. What is unknown, as of a newer isotherm, says nothing here.
    pub fn hear(&mut self, event: &Value) {
        let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
        let at = event["at"].as_str().and_then(|at| humantime::parse_rfc3339(at).ok());
        match event["event"].as_str().unwrap_or_default() {
            "campaign_started" => *self = Watch { campaign: text("campaign"), began: at, ..Watch::default() },
            "campaign_ended" => self.ended = Some(event.clone()),
            "stopping" => self.stopping = Some(text("how")),
            "warning" => self.warnings += 1,
            name => {
                let id = text("device");
                if !id.is_empty() {
                    self.devices.entry(id).or_default().hear(name, event, at);
                }
            }
        }
    }

    /// How everything stands; times of day are UTC.
    pub fn text(&self) -> String {
        let (done, to_run) = self.devices.values().fold((0, 0), |(done, all), device| (done + device.done, all + device.to_run));
        let has_nothing_to_run = to_run == 0 && self.ended.is_some();
        let runs = if has_nothing_to_run { "nothing to run".into() } else { format!("{done}/{to_run} runs") };
        let mut head = vec![plain(&self.campaign), runs];
        head.extend(self.began.map(|began| format!("since {}", clock(began))));
        match (&self.ended, self.left()) {
            (Some(ended), _) => {
                let of = |name: &str| ended[name].as_u64().unwrap_or(0);
                head.push(format!("over: {} ok · {} failed · {} pending", of("ok"), of("failed"), of("pending")));
            }
            (None, Some(left)) => head.push(format!("about {} left", duration(left))),
            (None, None) => {}
        }
        if self.warnings > 0 {
            head.push(format!("{} warnings in the journal", self.warnings));
        }
        let wide = self.devices.keys().map(|id| id.chars().count()).max().unwrap_or(0);
        let mut lines = vec![head.join("   ")];
        lines.extend(self.stopping.iter().filter(|_| self.ended.is_none()).map(|how| format!("  {}", plain(how))));
        lines.extend(self.devices.iter().map(|(id, device)| format!("  {:wide$}  {}", plain(id), device.text())));
        lines.join("\n") + "\n"
    }

    /// Until the slowest device is through, by what its runs took so far.
    fn left(&self) -> Option<Duration> {
        let of = |device: &Device| {
            let left = device.to_run.saturating_sub(device.done);
            let mean = device.spent.checked_div(device.timed)?;
            Some(mean.saturating_mul(u32::try_from(left).ok()?))
        };
        self.devices.values().filter_map(of).max()
    }
}

impl Device {
    fn hear(&mut self, name: &str, event: &Value, at: Option<SystemTime>) {
        let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
        match name {
            "device_ready" | "run_lost" => self.now = Now::There,
            // A run that it had goes on; that it has ended is told next.
            "link_back" => {
                let run = if let Now::Away { run, .. } = &mut self.now { run.take() } else { None };
                self.now = run.map_or(Now::There, Now::Runs);
            }
            // What was collected before is done and was not planned.
            "device_planned" => self.to_run = self.done + event["to_run"].as_u64().unwrap_or(0) as usize,
            "repeating" => self.to_run += event["runs"].as_u64().unwrap_or(0) as usize,
            "started" | "attached" => {
                let what = format!("{} r{}{}", text("label"), event["repetition"], if event["kind"] == "power" { " power" } else { "" });
                // When one of an earlier controller began isn't said here.
                self.now = Now::Runs(Run { what, since: at.filter(|_| name == "started") });
            }
            "finished" => self.finished(event, at),
            "push_started" => self.now = Now::Copies { model: text("model"), since: at },
            "pushed" => self.now = Now::There,
            "link_lost" => {
                let run = if let Now::Runs(run) = &self.now { Some(run.clone()) } else { None };
                self.now = Now::Away { since: at, why: text("reason"), again_s: None, run };
            }
            "out_of_reach" => {
                let again = event["again_s"].as_u64();
                match &mut self.now {
                    Now::Away { why, again_s, .. } => (*why, *again_s) = (text("reason"), again),
                    _ => self.now = Now::Away { since: at, why: text("reason"), again_s: again, run: None },
                }
            }
            "device_failed" => self.now = Now::Failed(text("message")),
            "device_done" if !matches!(self.now, Now::Failed(_)) => self.now = Now::Over,
            _ => {}
        }
    }

    fn finished(&mut self, event: &Value, at: Option<SystemTime>) {
        if let Now::Runs(Run { since: Some(since), .. }) = &self.now {
            self.spent += at.and_then(|at| at.duration_since(*since).ok()).unwrap_or_default();
            self.timed += 1;
        }
        self.now = Now::There;
        self.done += 1;
        let (status, validity) = (event["status"].as_str().unwrap_or_default(), event["validity"].as_str().unwrap_or_default());
        self.failed += usize::from(status == "failed" || validity == "invalid");
        self.degraded += usize::from(status == "ok" && validity == "degraded");
        let how = match status {
            "ok" if validity == "invalid" => "invalid".to_owned(),
            "ok" => headline(&event["headline"]).unwrap_or_else(|| "ok".to_owned()),
            other => format!("{other}: {}", event["reason"].as_str().unwrap_or_default()),
        };
        self.last = Some(format!("{} r{}  {how}", event["label"].as_str().unwrap_or_default(), event["repetition"]));
    }

    fn text(&self) -> String {
        let since = |since: &Option<SystemTime>| since.map_or_else(String::new, |since| format!(" since {}", clock(since)));
        let now = match &self.now {
            Now::Unheard => "waits for its turn".to_owned(),
            Now::There => "between two runs".to_owned(),
            Now::Runs(Run { what, since: began }) => format!("{}{}", plain(what), since(began)),
            Now::Copies { model, since: began } => format!("model {} is copied there{}", plain(model), since(began)),
            Now::Away { since: lost, why, again_s, run } => {
                let again = again_s.map_or_else(String::new, |s| format!(", tried again in {}", duration(Duration::from_secs(s))));
                let run = run.as_ref().map_or_else(String::new, |run| format!("; {} goes on there", plain(&run.what)));
                format!("! out of reach{}: {}{again}{run}", since(lost), plain(why))
            }
            Now::Failed(why) => format!("✗ {}", plain(why)),
            Now::Over => "through".to_owned(),
        };
        let mut counts = format!("{}/{}", self.done, self.to_run);
        for (n, word) in [(self.failed, "failed"), (self.degraded, "degraded")] {
            if n > 0 {
                counts += &format!(" ({n} {word})");
            }
        }
        let last = self.last.as_ref().map_or_else(String::new, |last| format!("   last: {}", plain(last)));
        format!("{counts:8}  {now}{last}")
    }
}

fn headline(headline: &Value) -> Option<String> {
    let (name, metric) = (headline[0].as_str()?, &headline[1]);
    let unit = metric["unit"].as_str().filter(|unit| *unit != "1").map_or_else(String::new, |unit| format!(" {unit}"));
    Some(format!("{name} {}{unit}", number(metric["value"].as_f64()?)))
}

/// `21:04:07`.
fn clock(at: SystemTime) -> String {
    humantime::format_rfc3339_seconds(at).to_string()[11..19].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn heard(events: &[(&str, Value)]) -> Watch {
        let mut watch = Watch::default();
        for (at, event) in events {
            let mut event = event.clone();
            event["at"] = format!("2026-11-30T{at}.000Z").into();
            watch.hear(&event);
        }
        watch
    }

    fn started(device: &str, run_id: &str) -> Value {
        json!({"event": "started", "device": device, "run_id": run_id, "label": "threads=4", "kind": "timing", "repetition": 1})
    }

    fn finished(device: &str, run_id: &str, status: &str, validity: &str) -> Value {
        let headline = json!(["latency_ms", {"value": 1.4928, "unit": "ms"}]);
        json!({"event": "finished", "device": device, "run_id": run_id, "label": "threads=4", "repetition": 1, "status": status,
               "validity": validity, "reason": "oom", "headline": headline})
    }

    #[test]
    fn every_device_has_a_line_with_what_it_does_and_what_it_did() {
        let planned = |device: &str| json!({"event": "device_planned", "device": device, "to_run": 4});
        let mut events = vec![
            ("21:00:00", json!({"event": "campaign_started", "campaign": "night"})),
            ("21:00:01", json!({"event": "out_of_reach", "device": "c", "reason": "no route", "again_s": 30})),
            ("21:00:01", planned("a")),
            ("21:00:01", planned("b\u{1b}[2J")),
            ("21:00:02", started("a", "1")),
            ("21:00:12", finished("a", "1", "ok", "valid")),
            ("21:00:12", started("a", "2")),
            ("21:00:20", finished("a", "2", "failed", "valid")),
            ("21:00:20", started("a", "3")),
            ("21:00:30", json!({"event": "link_lost", "device": "a", "reason": "timed out"})),
            ("21:00:31", json!({"event": "out_of_reach", "device": "a", "reason": "still", "again_s": 4})),
        ];
        let text = heard(&events).text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "night   2/8 runs   since 21:00:00   about 18 s left");
        assert!(
            lines[1].contains("c") && lines[1].ends_with("0/0       ! out of reach since 21:00:01: no route, tried again in 30 s"),
            "{}",
            lines[1]
        );
        assert!(
            lines[2].ends_with(
                "2/4 (1 failed)  ! out of reach since 21:00:30: still, tried again in 4 s; threads=4 r1 goes on there   last: threads=4 r1  failed: oom"
            ),
            "{}",
            lines[2]
        );
        assert!(!text.contains('\u{1b}'), "{text:?}");
        events.push(("21:00:40", json!({"event": "link_back", "device": "a"})));
        events.push(("21:00:41", finished("a", "3", "ok", "degraded")));
        events.push(("21:00:42", json!({"event": "campaign_ended", "ok": 2, "failed": 1, "pending": 5})));
        let watch = heard(&events);
        assert!(watch.is_over());
        assert!(watch.text().starts_with("night   3/8 runs   since 21:00:00   over: 2 ok · 1 failed · 5 pending\n"), "{}", watch.text());
        assert!(watch.text().contains("3/4 (1 failed) (1 degraded)  between two runs   last: threads=4 r1  latency_ms 1.493 ms"), "{}", watch.text());
        // The next night begins anew.
        events.push(("22:00:00", json!({"event": "campaign_started", "campaign": "night"})));
        assert_eq!(heard(&events).text(), "night   0/0 runs   since 22:00:00\n");
        events.push(("22:00:01", json!({"event": "campaign_ended", "ok": 3, "failed": 0, "pending": 0})));
        assert_eq!(heard(&events).text(), "night   nothing to run   since 22:00:00   over: 3 ok · 0 failed · 0 pending\n");
    }

    #[test]
    fn what_is_not_understood_is_passed_over() {
        let mut watch = Watch::default();
        for event in [json!(null), json!({"event": "of_later", "device": "a"}), json!({"event": 7, "device": ["a"]}), json!({"event": "finished"})] {
            watch.hear(&event);
        }
        assert_eq!(watch.text(), "   0/0 runs\n  a  0/0       waits for its turn\n");
    }
}
