//! A copy for others is complete and whole, and says nothing of whose machine it came from.

use crate::kit::{Bench, text};
use crate::lab::Ran;
use isotherm::plan::identity::point_identity;
use isotherm::store::record::Record;
use isotherm::store::{index, seal};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Two points; the script tells everything that it knows of its surroundings.
fn talkative() -> Bench {
    let bench = Bench::new();
    bench.edit("c.yaml", "env: { MODE: fast }", "env: { MODE: fast, HF_TOKEN: hunter2-secret, OMP_NUM_THREADS: '3' }");
    bench.script(
        "bench.sh",
        "env; pwd; hostname; uname -n >&2; echo $USER@`uname -n` $HOME/models; echo 'eth0 52:54:00:ab:cd:ef root=UUID=1234-ABCD serial: S4X9NF0M1'
echo 'model /home/somebody/llama.gguf, cache /root/.cache'; printf '\\377 %s\\n' \"$USER\" > bytes.bin; echo \"{\\\"score\\\": $1.5}\"",
    );
    bench
}

fn export(bench: &Bench, more: &[&str]) -> Ran {
    bench.lab.run(&[&["export", "results/c", "--public", "out"], more].concat())
}

/// Every file below a directory with its content, decompressed.
fn files(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            let bytes = fs::read(&path).unwrap();
            let bytes = if path.extension().is_some_and(|e| e == "zst") { zstd::decode_all(&bytes[..]).unwrap() } else { bytes };
            found.push((path, bytes));
        }
    }
    found
}

#[track_caller]
fn is_nowhere(dir: &Path, private: &str) {
    for (path, bytes) in files(dir) {
        let text = String::from_utf8_lossy(&bytes).to_lowercase();
        let at = text.find(&private.to_lowercase());
        assert!(
            at.is_none(),
            "{private:?} is in {}: …{}…",
            path.display(),
            text.chars().skip(at.unwrap_or(0).saturating_sub(60)).take(160).collect::<String>()
        );
        assert!(!path.strip_prefix(dir).unwrap().display().to_string().contains(private), "{private:?} in the name {}", path.display());
    }
}

fn host() -> String {
    String::from_utf8(std::process::Command::new("uname").arg("-n").output().unwrap().stdout).unwrap().trim().to_owned()
}

fn records(dir: &Path) -> Vec<(String, Record)> {
    let all = index::read_all(dir).unwrap();
    assert!(all.broken.is_empty(), "{:?}", all.broken);
    all.records
}

#[test]
fn nothing_of_host_user_and_places_is_left_and_everything_else_is() {
    let bench = talkative();
    bench.edit("c.yaml", "metrics: {", "metrics: { b: { from: 'file:bytes.bin', regex: '()', take: first, unit: x, better: lower },");
    bench.run(&[]).expect(1);
    let done = export(&bench, &[]).expect(0);
    assert!(done.stderr().contains("4 records and 0 sidecars in out"), "{}", done.stderr());
    let out = bench.lab.path("out");
    let lab = bench.lab.path("").display().to_string();
    for private in [lab.trim_end_matches('/'), "tester", "hunter2", "52:54:00", "1234-ABCD", "S4X9NF0M1", "/home/", "/root", "MODE=fast"] {
        is_nowhere(&out, private);
    }
    let machine = &records(&bench.lab.results("c"))[0].1.device.machine.clone().unwrap();
    is_nowhere(&out, &machine.machine_key);
    is_nowhere(&out, machine.boot_id.as_deref().unwrap());
    is_nowhere(&out, &machine.hostname);
    is_nowhere(&out, &format!("@{}", host()));

    let (_, record) = records(&out).remove(0);
    let stdout = text(&serde_json::to_value(&record.raw.stdout).unwrap()).to_owned();
    for left in [
        "OMP_NUM_THREADS=3",
        "HF_TOKEN=<redacted>",
        "HOME=~",
        "$CAMPAIGN\n",
        "eth0 <mac> root=UUID=<id>",
        "model ~/llama.gguf, cache ~/.cache",
        "{\"score\": 1.5}",
    ] {
        assert!(stdout.contains(left), "{left:?} is not in\n{stdout}");
    }
    assert_eq!(record.raw.stdout.sha256, isotherm::digest::sha256_hex(stdout.as_bytes()));
    assert_eq!(record.raw.stdout.bytes, stdout.len() as u64);
    // Bytes that are no text are searched as bytes.
    let bytes = isotherm::store::sidecar::decode(record.raw.files["bytes.bin"].head.as_ref().unwrap()).unwrap();
    assert!(bytes.starts_with(b"\xff user-"), "{:?}", String::from_utf8_lossy(&bytes));
    let env = &record.backend.executed.as_ref().unwrap().env;
    assert_eq!([&env["HF_TOKEN"], &env["MODE"], &env["OMP_NUM_THREADS"]], ["<redacted>", "<redacted>", "3"]);
    let campaign = fs::read_to_string(out.join("campaign.yaml")).unwrap();
    assert!(campaign.contains("env: { MODE: \"<redacted>\", HF_TOKEN: \"<redacted>\", OMP_NUM_THREADS: '3' }"), "{campaign}");
}

#[test]
fn a_copy_is_whole_and_reports_the_same_numbers() {
    let bench = talkative();
    bench.run(&[]).expect(0);
    export(&bench, &[]).expect(0);
    bench.lab.run(&["verify", "out"]).expect(0);
    bench.lab.run(&["status", "out"]).expect(0);
    bench.lab.run(&["reparse", "out"]).expect(0);
    let report = |dir: &str| -> Value { serde_json::from_str(&bench.lab.run(&["report", dir, "--json"]).expect(0).stdout()).unwrap() };
    let (ours, theirs) = (report("results/c"), report("out"));
    for same in ["tables", "totals", "findings", "axes"] {
        assert_eq!(ours[same], theirs[same], "{same}");
    }
    // Names of directories carry the identity of the copy, and the identity is the hash of what stands there.
    for (path, record) in records(&bench.lab.path("out")) {
        assert_eq!(record.ids.point_identity, point_identity(&record.ids.identity));
        assert!(path.contains(&format!("-{}/", &record.ids.point_identity[..8])), "{path}");
    }
}

#[test]
fn every_record_says_what_was_replaced_in_it() {
    let bench = talkative();
    bench.run(&[]).expect(0);
    let before = records(&bench.lab.results("c"));
    let json: Value = serde_json::from_str(&export(&bench, &["--json"]).expect(0).stdout()).unwrap();
    assert_eq!((&json["records"], &json["left_out"], &json["warnings"]), (&4.into(), &Value::Array(vec![]), &Value::Array(vec![])));
    for ((_, old), (_, new)) in before.iter().zip(records(&bench.lab.path("out"))) {
        let exported = new.exported.clone().unwrap();
        assert_eq!(exported.isotherm, env!("CARGO_PKG_VERSION"));
        let declared: BTreeSet<String> = exported.replaced.iter().map(|r| r.field.clone()).collect();
        let (old, mut new) = (serde_json::to_value(old).unwrap(), serde_json::to_value(new).unwrap());
        new.as_object_mut().unwrap().shift_remove("exported");
        let mut differing = Vec::new();
        differences(&old, &new, "", &mut differing);
        for field in differing {
            let is_declared = declared.iter().any(|d| field == *d || field.starts_with(&format!("{d}.")));
            assert!(is_declared, "{field} differs, and only {declared:?} are declared");
        }
    }
}

fn differences(old: &Value, new: &Value, field: &str, found: &mut Vec<String>) {
    match (old, new) {
        (Value::Object(a), Value::Object(b)) => {
            let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for name in names {
                let field = if field.is_empty() { name.clone() } else { format!("{field}.{name}") };
                differences(a.get(name).unwrap_or(&Value::Null), b.get(name).unwrap_or(&Value::Null), &field, found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).enumerate().for_each(|(i, (a, b))| differences(a, b, &format!("{field}.{i}"), found));
        }
        (a, b) if a != b => found.push(field.to_owned()),
        _ => {}
    }
}

#[test]
fn large_output_is_searched_in_its_sidecar_and_both_ends_of_a_cut_one() {
    let bench =
        Bench::reading("seq 1 20000; uname -n; echo \"$HOME\"; echo 5", "v: { from: stdout_last_line, regex: '([0-9]+)', unit: x, better: lower }");
    bench.run(&[]).expect(0);
    bench.script("bench.sh", "echo $USER; head -c 5000000 /dev/zero; echo; echo \"$HOME\"; echo 5");
    bench.run(&[]).expect(0);
    export(&bench, &[]).expect(0);
    let out = bench.lab.path("out");
    for private in [bench.lab.path("").to_str().unwrap().trim_end_matches('/'), "tester"] {
        is_nowhere(&out, private);
    }
    bench.lab.run(&["verify", "out"]).expect(0);
    let (_, record) = records(&out).remove(0);
    assert_eq!((record.raw.stdout.bytes > 5_000_000, record.raw.stdout.sha256.as_str()), (true, ""));
    bench.lab.run(&["reparse", "out"]).expect(0);
}

#[test]
fn points_that_differ_only_in_a_private_value_stay_apart() {
    let bench = Bench::new();
    bench.edit("c.yaml", "env: { MODE: fast }", "env: { WHO: [somebody, nobody-else] }");
    bench.run(&[]).expect(0);
    export(&bench, &[]).expect(0);
    let identities: BTreeSet<String> = records(&bench.lab.path("out")).into_iter().map(|(_, r)| r.ids.point_identity).collect();
    assert_eq!(identities.len(), 4);
    let report = bench.lab.run(&["report", "out"]).expect(0).stdout();
    assert!(report.contains("somebody") && report.contains("nobody-else"), "an axis keeps its values:\n{report}");
}

#[test]
fn the_pseudonyms_of_two_copies_have_nothing_in_common() {
    let bench = Bench::new();
    bench.run(&[]).expect(0);
    export(&bench, &[]).expect(0);
    bench.lab.run(&["export", "results/c", "--public", "other"]).expect(0);
    let name = |dir: &str| records(&bench.lab.path(dir)).remove(0).1.device.machine.unwrap();
    let (one, other, ours) = (name("out"), name("other"), name("results/c"));
    for (a, b, c) in [(one.hostname, other.hostname, ours.hostname), (one.machine_key, other.machine_key, ours.machine_key)] {
        assert!(a != b && a != c && b != c, "{a} {b} {c}");
    }
    // The key is nowhere: not even the salt in the copy gives the host's name away.
    let id: Value = serde_json::from_slice(&fs::read(bench.lab.path("out/.isotherm-id")).unwrap()).unwrap();
    assert_ne!(isotherm::run::assemble::pseudonym(id["salt"].as_str().unwrap(), &host()), name("out").hostname);
}

#[test]
fn superseded_readings_and_attempts_are_in_the_copy_too() {
    let bench = talkative();
    bench.run(&[]).expect(0);
    bench.edit("c.yaml", "json: /score", "json: /scoer");
    bench.run(&["--limit", "1"]).expect(1);
    export(&bench, &[]).expect(0);
    let ours = files(&bench.lab.results("c"))
        .into_iter()
        .filter(|(path, _)| path.display().to_string().contains("timing-") || path.display().to_string().contains("superseded"))
        .count();
    let theirs = files(&bench.lab.path("out"))
        .into_iter()
        .filter(|(path, _)| path.display().to_string().contains("timing-") || path.display().to_string().contains("superseded"))
        .count();
    assert_eq!((ours, theirs), (9, 9));
    bench.lab.run(&["verify", "out"]).expect(0);
    let (_, record) = records(&bench.lab.path("out")).into_iter().find(|(_, r)| r.read.as_ref().is_some_and(|read| !read.again.is_empty())).unwrap();
    assert!(bench.lab.path("out").join(&record.read.unwrap().again[0].earlier).is_file());
}

#[test]
fn what_the_last_search_finds_is_named_and_there_is_no_copy() {
    let bench = Bench::reading("echo /opt/testers-tools/x; echo 5", "v: { from: stdout_last_line, regex: '([0-9]+)', unit: x, better: lower }");
    bench.run(&[]).expect(0);
    let refused = export(&bench, &[]).expect(1);
    assert!(
        refused.stderr().contains("the copy still has a user name in here/") && refused.stderr().contains("raw.stdout.head.data"),
        "{}",
        refused.stderr()
    );
    let left: Vec<String> = fs::read_dir(bench.lab.path("")).unwrap().flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    assert!(!left.iter().any(|name| name.contains("out")), "{left:?}");
    export(&bench, &["--redact", "testers-tools"]).expect(0);
    is_nowhere(&bench.lab.path("out"), "tester");
}

#[test]
fn a_device_that_has_the_hosts_name_goes_by_another_one_everywhere() {
    let bench = Bench::new();
    bench.edit("c.yaml", "devices: { here:", "devices: { tester:");
    bench.edit("c.yaml", "devices: here", "devices: tester");
    bench.run(&[]).expect(0);
    export(&bench, &[]).expect(0);
    is_nowhere(&bench.lab.path("out"), "tester");
    bench.lab.run(&["verify", "out"]).expect(0);
    bench.lab.run(&["status", "out"]).expect(0);
}

#[test]
fn a_damaged_record_is_never_copied_unseen() {
    let bench = Bench::new();
    bench.run(&[]).expect(0);
    let path = bench.place(1, 0);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let refused = export(&bench, &[]).expect(1);
    assert!(refused.stderr().contains("1 damaged file can't be searched") && !bench.lab.path("out").exists(), "{}", refused.stderr());
}

#[test]
fn a_copy_of_a_copy_is_one_and_nothing_runs_into_either() {
    let bench = Bench::new();
    bench.run(&[]).expect(0);
    export(&bench, &[]).expect(0);
    bench.lab.run(&["export", "out", "--public", "second"]).expect(0);
    bench.lab.run(&["verify", "second"]).expect(0);
    fs::create_dir(bench.lab.path("shipped")).unwrap();
    fs::rename(bench.lab.path("out"), bench.lab.path("shipped/c")).unwrap();
    let refused = bench.lab.run(&["run", "c.yaml", "--results", "shipped"]).expect(2);
    assert!(refused.stderr().contains("is a public copy: nothing can be run into it"), "{}", refused.stderr());
}

#[test]
fn who_tries_a_copy_is_not_named_in_it() {
    let bench = talkative();
    bench.run(&[]).expect(0);
    export(&bench, &[]).expect(0);
    bench.lab.run(&["reparse", "out"]).expect(0);
    bench.lab.run(&["export", "out", "--public", "second"]).expect(0);
    is_nowhere(&bench.lab.path("out"), "tester");
    is_nowhere(&bench.lab.path("out"), &format!("@{}", host()));
}

#[test]
fn an_export_says_what_it_needs_and_overwrites_nothing() {
    let bench = Bench::new();
    bench.run(&[]).expect(0);
    let plain = bench.lab.run(&["export", "results/c"]).expect(2);
    assert!(plain.stderr().contains("public copies only") && plain.stderr().contains("isotherm export results/c --public OUT"), "{}", plain.stderr());
    bench.lab.write("out/mine.txt", "mine");
    let refused = export(&bench, &[]).expect(2);
    assert!(refused.stderr().contains("not an empty directory") && bench.lab.read("out/mine.txt") == "mine", "{}", refused.stderr());
    fs::remove_file(bench.lab.path("out/mine.txt")).unwrap();
    export(&bench, &[]).expect(0);
    bench.lab.run(&["export", ".", "--public", "other"]).expect(2);
    let inside = bench.lab.run(&["export", "results/c", "--public", "results/c/public/copy"]).expect(2);
    assert!(inside.stderr().contains("lies in the directory that is to be copied"), "{}", inside.stderr());
}

#[test]
fn a_host_name_that_is_not_known_here_is_warned_of() {
    let bench = Bench::new();
    bench.run(&[]).expect(0);
    for (path, _) in bench.lab.records("c") {
        let mut record = seal::open(&fs::read(&path).unwrap()).unwrap();
        record.device.machine.as_mut().unwrap().hostname = "hmac:0123456789abcdef".into();
        fs::write(&path, seal::seal(&record)).unwrap();
    }
    let done = export(&bench, &[]).expect(0);
    assert!(done.stderr().contains("warning: 1 machine of these records has a host name that is not known here"), "{}", done.stderr());
}

#[test]
fn a_secret_of_several_lines_is_taken_out_line_by_line() {
    let bench = Bench::one("argv: [./bench.sh]\nenv:\nCERT: |\n");
    let text = bench.lab.read("c.yaml").replace("    CERT: |\n", "      CERT: |\n        begin private part\n        QUJDREVGRw==\n");
    bench.lab.write("c.yaml", text);
    bench.script("bench.sh", "echo \"$CERT\" | tail -n 1; echo 'a QUJDREVGRw== b'");
    bench.run(&[]).expect(0);
    export(&bench, &[]).expect(0);
    is_nowhere(&bench.lab.path("out"), "QUJDREVGRw");
    is_nowhere(&bench.lab.path("out"), "begin private part");
}

#[test]
fn a_directory_in_use_is_not_copied() {
    let bench = Bench::new();
    bench.run(&[]).expect(0);
    let lock = fs::File::open(bench.lab.results("c").join(".lock")).unwrap();
    lock.lock().unwrap();
    let held = export(&bench, &[]).expect(4);
    assert!(held.stderr().contains("is in use"), "{}", held.stderr());
}

#[test]
fn files_that_the_campaign_uses_are_in_the_copy_and_searched_too() {
    let bench = Bench::new();
    bench.edit("c.yaml", "devices: { here: { local: {} } }", "use: [shared.yaml]");
    bench.lab.write("shared.yaml", "# of tester\ndevices: { here: { local: {}, env: { WHERE: the-attic } } }\n");
    bench.run(&[]).expect(0);
    export(&bench, &[]).expect(0);
    let shared = fs::read_to_string(bench.lab.path("out/campaign.used.1.yaml")).unwrap();
    assert!(shared.contains("WHERE: \"<redacted>\""), "{shared}");
    is_nowhere(&bench.lab.path("out"), "the-attic");
    is_nowhere(&bench.lab.path("out"), "tester");
}

#[test]
fn a_secret_stays_what_it_was_in_the_records() {
    let bench = Bench::one("argv: [./bench.sh]\nenv: { TOKEN: '${secret:CI_TOKEN}' }");
    bench.script("bench.sh", "echo \"got $TOKEN\"");
    bench.lab.run_with(&["run", "c.yaml"], &[("CI_TOKEN", "correct-horse")]).expect(0);
    export(&bench, &[]).expect(0);
    is_nowhere(&bench.lab.path("out"), "correct-horse");
    let (_, record) = records(&bench.lab.path("out")).remove(0);
    assert_eq!(record.backend.executed.unwrap().env["TOKEN"], "<redacted>");
}

#[test]
fn an_axis_that_is_called_like_a_field_of_a_record_is_searched_like_any_other() {
    let bench = Bench::new();
    bench.edit("c.yaml", "size: [1, 2]", "size: [1, 2], level: [/home/somebody/falcon], state: [Acme One], encoding: [base64]");
    bench.run(&[]).expect(0);
    let link_lost = "{\"event\":\"link_lost\",\"device\":\"here\",\"reason\":\"no socket /home/somebody/agent\"}\n";
    let journal = bench.lab.results("c").join("journal.ndjson");
    fs::write(&journal, fs::read_to_string(&journal).unwrap() + link_lost).unwrap();
    export(&bench, &["--redact", "Acme One"]).expect(0);
    let out = bench.lab.path("out");
    for private in ["/home/", "somebody", "Acme One", "acme_one"] {
        is_nowhere(&out, private);
    }
    for (path, record) in records(&out) {
        assert_eq!(record.ids.point.axes["level"].to_string(), "~/falcon");
        let directory = format!("{}-{}", record.ids.point.slug, &record.ids.point_identity[..8]);
        assert_eq!(path.split('/').nth(1), Some(directory.as_str()));
        assert!(record.ids.point.slug.bytes().all(|b| b.is_ascii_alphanumeric() || b"._=-".contains(&b)), "{}", record.ids.point.slug);
    }
    bench.lab.run(&["verify", "out"]).expect(0);
    bench.lab.run(&["status", "out"]).expect(0);
    // The journal speaks of records where they are.
    let journal = fs::read_to_string(out.join("journal.ndjson")).unwrap();
    let events = journal.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let paths: Vec<String> = events.filter(|event| event["event"] == "finished").map(|event| event["path"].as_str().unwrap().to_owned()).collect();
    assert!(paths.len() == 4 && paths.iter().all(|path| out.join(path).is_file()), "{paths:?}");
}

#[test]
fn variables_are_taken_out_of_a_campaign_however_they_are_written_and_whether_they_ran_or_not() {
    let bench = Bench::new();
    let block = "  - devices: here
    backend: command
    params: { later: [1] }
    env:
      PIN: &pin \"4711\"
      SAME: *pin
      NOTE: |
        one
        two
      CUSTOMER: the-falcon-company   # CUSTOMER: of-old
      SHORT: >-
        abc
    argv: [./bench.sh, \"{later}\"]
  - devices: here
    backend: command
    params: { licence: [1] }
    env: { LICENCE: 99887766 }
    argv: [./bench.sh, \"{licence}\"]
    metrics: { score: { from: stdout_last_line, json: /score, unit: points, better: higher } }
";
    bench.edit("c.yaml", "\nmatrix:", "\nx-anchors: { short: &short xy9 }\nmatrix:");
    bench.edit("c.yaml", "env: { MODE: fast }", "env: { MODE: fast, X: *short }");
    bench.lab.write("c.yaml", bench.lab.read("c.yaml") + block);
    bench.script("bench.sh", "echo licence 99887766, 199887766; echo '{\"score\": '$1'.5}'");
    bench.run(&["--filter", "size=1,2"]).expect(0);
    bench.run(&["--filter", "licence=1"]).expect(0);
    export(&bench, &[]).expect(0);
    let out = bench.lab.path("out");
    let campaign = fs::read_to_string(out.join("campaign.yaml")).unwrap();
    for private in ["4711", "one\n", "two\n", "falcon", "of-old", "abc", "xy9", "99887766\n", "fast"] {
        assert!(!campaign.contains(private), "{private:?} is in\n{campaign}");
    }
    is_nowhere(&out, " 99887766");
    let declared = isotherm::config::variables_of(&campaign).unwrap();
    assert_eq!(declared.len(), 9, "{campaign}");
}

#[test]
fn a_campaign_file_that_can_not_be_searched_is_left_out_and_said() {
    let bench = Bench::new();
    bench.run(&[]).expect(0);
    let campaign = bench.lab.results("c").join("campaign.yaml");
    fs::write(bench.lab.path("private.txt"), "of nobody's business").unwrap();
    for (left_out, why) in [("env: [", "it is no YAML"), ("", "it is a symbolic link")] {
        fs::remove_file(&campaign).unwrap();
        if left_out.is_empty() {
            std::os::unix::fs::symlink(bench.lab.path("private.txt"), &campaign).unwrap();
        } else {
            fs::write(&campaign, left_out).unwrap();
        }
        let said = export(&bench, &[]).expect(0).stdout();
        assert!(said.contains(&format!("left out  campaign.yaml: {why}")), "{said}");
        assert!(!bench.lab.path("out/campaign.yaml").exists());
        bench.lab.run(&["report", "out"]).expect(0);
        fs::remove_dir_all(bench.lab.path("out")).unwrap();
    }
}

#[test]
fn what_redact_names_is_taken_out_of_the_makes_of_a_machine_too() {
    let bench = Bench::new();
    bench.run(&[]).expect(0);
    let Some(cpu) = records(&bench.lab.results("c")).remove(0).1.device.machine.unwrap().cpu_model else {
        eprintln!("skipped: this machine does not say which CPU it has");
        return;
    };
    export(&bench, &["--redact", &cpu]).expect(0);
    is_nowhere(&bench.lab.path("out"), &cpu);
    bench.lab.run(&["verify", "out"]).expect(0);
    bench.lab.run(&["status", "out"]).expect(0);
}

#[test]
fn the_last_controllers_names_are_known_although_the_export_takes_the_lock() {
    let bench = Bench::reading("echo annabel at gustav; echo 5", "v: { from: stdout_last_line, regex: '([0-9]+)', unit: x, better: lower }");
    bench.run(&[]).expect(0);
    fs::write(bench.lab.results("c").join(".lock"), "campaign `c` is run by annabel@gustav pid 1 since 2026-01-01T00:00:00Z\n").unwrap();
    export(&bench, &[]).expect(0);
    is_nowhere(&bench.lab.path("out"), "annabel");
    is_nowhere(&bench.lab.path("out"), "gustav");
}

#[test]
fn a_directory_that_somebody_has_copied_is_in_the_copy_too() {
    let bench = Bench::new();
    bench.run(&[]).expect(0);
    let place = bench.place(1, 0);
    let backup = place.parent().unwrap().with_file_name("backup of one");
    fs::create_dir(&backup).unwrap();
    fs::copy(&place, backup.join(place.file_name().unwrap())).unwrap();
    export(&bench, &[]).expect(0);
    assert_eq!(records(&bench.lab.path("out")).len(), 5);
    assert!(bench.lab.path("out/here/backup of one/timing-r0.json").is_file());
}

#[test]
fn an_interrupted_export_leaves_nothing_and_the_next_one_removes_what_a_killed_one_left() {
    let bench = Bench::new();
    bench.run(&[]).expect(0);
    let (from, out) = (bench.lab.results("c"), bench.lab.path("out"));
    let stopped = isotherm::export::export(&from, &out, &[], "this test", &|| true).unwrap_err();
    assert!(stopped.to_string().contains("interrupted"), "{stopped}");
    let left = || -> Vec<String> {
        let names = fs::read_dir(bench.lab.path("")).unwrap().flatten().map(|e| e.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.contains("out")).collect()
    };
    assert!(left().is_empty(), "{:?}", left());
    // Of a process that is no more, of one that goes on, and what is none of ours.
    let mut gone = std::process::Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let [abandoned, going_on, other] = [gone.id().to_string(), std::process::id().to_string(), "mine".into()].map(|pid| format!(".out.{pid}.tmp"));
    for name in [&abandoned, &going_on, &other] {
        bench.lab.write(&format!("{name}/campaign.yaml"), "of tester");
    }
    export(&bench, &[]).expect(0);
    let left = left();
    assert!(!left.contains(&abandoned) && left.contains(&going_on) && left.contains(&other), "{left:?}");
}
