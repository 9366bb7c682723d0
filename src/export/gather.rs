//! Everything of a results directory that a copy is made from, and the names that must not be in it.

use crate::config;
use crate::plan::identity::DeviceReport;
use crate::store::index::{self, AllRecords, DEVICES, SUPERSEDED};
use crate::store::plan_file::{self, StoredPlan};
use crate::store::record::Record;
use crate::store::results::Results;
use crate::store::{Broken, StoreError, file, formats, journal, sidecar};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Names that stand for nobody in particular.
const EVERYBODYS: [&str; 7] = ["root", "nobody", "user", "host", "localhost", "localdomain", "none"];

#[derive(Debug, Default)]
pub struct Gathered {
    /// With paths relative to the directory, those in `superseded/` too.
    pub records: Vec<(String, Record)>,
    /// Files that can't be searched.
    pub broken: Vec<Broken>,
    pub left_out: Vec<(String, String)>,
    pub campaign: Option<String>,
    /// Files that the campaign uses: name in the directory, text.
    pub used: Vec<(String, String)>,
    pub plan: Option<StoredPlan>,
    /// Device id → its report.
    pub reports: Vec<(String, DeviceReport)>,
    pub journal: Vec<Value>,
    /// Directories with the token that stands for each.
    pub places: Vec<(String, &'static str)>,
    pub users: BTreeSet<String>,
    pub hosts: BTreeSet<String>,
    /// Hosts in records that go by none of these names.
    pub unknown_hosts: usize,
}

impl Gathered {
    /// # Errors
    /// A directory or a file that can't be read; a damaged record is in `broken`.
    pub fn of(results: &Results) -> Result<Gathered, StoreError> {
        let dir = &results.dir;
        let AllRecords { records, broken, mut newer } = index::read_all(dir)?;
        if let Some((_, newer)) = newer.pop() {
            return Err(newer);
        }
        let mut all = Gathered { records, broken, ..Gathered::default() };
        all.superseded(dir);
        for (path, record) in &all.records {
            let parent = dir.join(path);
            let parent = parent.parent().unwrap_or(dir);
            let bad = sidecar::of(record).into_iter().find_map(|file| sidecar::read(parent, file).err());
            all.broken.extend(bad.map(|why| Broken { path: path.clone(), why }));
        }
        all.campaign = all.campaign_text(&dir.join("campaign.yaml"), "campaign.yaml");
        match plan_file::read(dir) {
            Ok(plan) => all.plan = plan,
            Err(why) => all.broken.push(why),
        }
        all.device_reports(dir);
        let (events, bad) = journal::read(dir)?;
        all.journal = events;
        if !bad.is_empty() {
            all.left_out.push(("journal.ndjson".into(), format!("{} lines that are none", bad.len())));
        }
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("journal.torn.") {
                all.left_out.push((name, "the torn end of a journal can't be searched".into()));
            } else if name.starts_with("campaign.used.")
                && let Some(text) = all.campaign_text(&entry.path(), &name)
            {
                all.used.push((name, text));
            }
        }
        all.used.sort();
        all.left_out.sort();
        all.names(results);
        Ok(all)
    }

    /// The text of a campaign file that can be searched; why another one is left out is noted. Links may lead anywhere.
    fn campaign_text(&mut self, path: &Path, name: &str) -> Option<String> {
        let text = match file::read(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return None,
            Err(e) => Err(e.to_string()),
            Ok(bytes) => String::from_utf8(bytes).map_err(|e| e.to_string()),
        };
        text.map_err(|why| self.left_out.push((name.to_owned(), why))).ok()
    }

    fn superseded(&mut self, dir: &Path) {
        for entry in fs::read_dir(dir.join(SUPERSEDED)).into_iter().flatten().flatten() {
            let name = format!("{SUPERSEDED}/{}", entry.file_name().to_string_lossy());
            if name.contains("/damaged.") {
                self.left_out.push((name, "it was damaged when it was replaced, and can't be searched".into()));
            } else if name.ends_with(".json") {
                match index::read_record(&entry.path()) {
                    Ok(record) => self.records.push((name, record)),
                    Err(why) => self.broken.push(Broken { path: name, why }),
                }
            }
        }
        self.records.sort_by(|a, b| a.0.cmp(&b.0));
    }

    fn device_reports(&mut self, dir: &Path) {
        for entry in fs::read_dir(dir.join(DEVICES)).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(device) = name.strip_suffix(".json").filter(|name| !name.starts_with('.')) else { continue };
            match formats::read(formats::REPORT, &entry.path()) {
                Ok(report) => self.reports.extend(report.map(|report| (device.to_owned(), report))),
                Err(e) => self.broken.push(Broken { path: format!("{DEVICES}/{name}"), why: e.reason() }),
            }
        }
        self.reports.sort_by(|a, b| a.0.cmp(&b.0));
    }

    /// Who and where: of this machine, of the last controller, and of what records and reports say.
    fn names(&mut self, results: &Results) {
        let (dir, id) = (&results.dir, &results.id);
        let mut homes: BTreeSet<String> = BTreeSet::new();
        let mut users: BTreeSet<String> = ["USER", "LOGNAME"].iter().filter_map(|name| std::env::var(name).ok()).collect();
        let uid = rustix::process::geteuid().as_raw().to_string();
        for line in fs::read_to_string("/etc/passwd").unwrap_or_default().lines() {
            let fields: Vec<&str> = line.split(':').collect();
            if let [name, _, of, _, about, home, ..] = fields[..]
                && of == uid
            {
                users.insert(name.to_owned());
                homes.insert(home.to_owned());
                // The whole name stands first, where there is one; a single word may be any.
                users.extend(about.split(',').next().filter(|whole| whole.trim().contains(' ')).map(str::to_owned));
            }
        }
        homes.extend(std::env::var("HOME"));
        let mut hosts: BTreeSet<String> = BTreeSet::from([rustix::system::uname().nodename().to_string_lossy().into_owned()]);
        // `campaign `c` is run by user@host pid 12 since …`
        for word in results.before.split_whitespace() {
            if let Some((user, host)) = word.split_once('@') {
                users.insert(user.to_owned());
                hosts.insert(host.to_owned());
            }
        }
        for text in self.campaign.iter().chain(self.used.iter().map(|(_, text)| text)) {
            let (of_devices, of_logins) = config::reached_by(text);
            hosts.extend(of_devices);
            users.extend(of_logins);
        }
        users.extend(self.records.iter().filter_map(|(_, r)| r.backend.executed.as_ref()?.env.get("USER").cloned()));
        let of_home = |home: &String| Some(home.strip_prefix("/home/").or(home.strip_prefix("/Users/"))?.split('/').next()?.to_owned());
        users.extend(homes.iter().filter_map(of_home));

        let file = fs::canonicalize(dir.join(&id.campaign_file)).unwrap_or_else(|_| dir.join(&id.campaign_file));
        let mut places: Vec<(String, &'static str)> = Vec::new();
        let mut place = |path: PathBuf, token| places.push((path.display().to_string().trim_end_matches('/').to_owned(), token));
        if id.exported.is_none() {
            place(file.parent().map(Path::to_owned).unwrap_or_default(), "$CAMPAIGN");
        }
        for base in self.reports.iter().flat_map(|(_, report)| report.files.keys()).filter_map(|key| base_of(key)) {
            place(base.into(), "$CAMPAIGN");
        }
        place(fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned()), "$RESULTS");
        if let Ok(state) = std::env::var("XDG_STATE_HOME") {
            place(Path::new(&state).join("isotherm"), "$STATE");
        }
        place(format!("/var/tmp/isotherm-{uid}").into(), "$STATE");
        homes.iter().for_each(|home| place(home.into(), "~"));
        // `/`, `/root` and the like are found by their form, and would be found in every path as they stand.
        places.retain(|(path, _)| path.starts_with('/') && path.len() > 5);
        places.sort_by(|a, b| b.0.len().cmp(&a.0.len()).then_with(|| a.cmp(b)));
        places.dedup_by(|a, b| a.0 == b.0);
        self.places = places;

        // A full name's first label is a name of the host, too.
        let labels: Vec<String> = hosts.iter().filter_map(|host| host.split('.').next()).map(str::to_owned).collect();
        hosts.extend(labels);
        // `<redacted>` is what a copy has in its place.
        let telling =
            |name: &String| name.len() > 1 && !name.starts_with('<') && !EVERYBODYS.contains(&name.as_str()) && name.parse::<u64>().is_err();
        users.retain(telling);
        hosts.retain(telling);
        let known: BTreeSet<String> = hosts.iter().map(|host| crate::run::assemble::pseudonym(&id.salt, host)).collect();
        let named: BTreeSet<&str> = self.records.iter().filter_map(|(_, r)| Some(r.device.machine.as_ref()?.hostname.as_str())).collect();
        if id.exported.is_none() {
            self.unknown_hosts = named.iter().filter(|name| !known.contains(**name)).count();
        }
        (self.users, self.hosts) = (users, hosts);
    }
}

/// The directory in a question about a file: `Program ./x in /home/u/bench by default`.
fn base_of(key: &str) -> Option<String> {
    let (_, behind) = key.rsplit_once(" in ")?;
    let base = behind.split(" by ").next()?;
    (base.starts_with('/') && base.len() > 1).then(|| base.to_owned())
}
