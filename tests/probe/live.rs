//! This machine, with its real `/proc` and `/sys`, and with sensors laid over them.

use crate::lab::{Lab, Ran, eventually, is_root};
use crate::trees::fifo;
use serde_json::Value;
use std::fs;

pub fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout()).unwrap()
}

/// A capability of the first device.
#[track_caller]
fn capability<'a>(probe: &'a Value, id: &str) -> &'a Value {
    let all = probe["devices"][0]["capabilities"].as_array().unwrap();
    all.iter().find(|c| c["id"] == id).unwrap_or_else(|| panic!("no {id} in {probe:#}"))
}

#[test]
fn this_machine_is_probed_and_whatever_is_absent_says_why() {
    let lab = Lab::new();
    let probe = json(&lab.run(&["probe", "--json"]).expect(0));
    assert_eq!((&probe["probe_version"], &probe["devices"][0]["device"]), (&1.into(), &"here".into()));
    for capability in probe["devices"][0]["capabilities"].as_array().unwrap() {
        match (&capability["found"]["present"], &capability["found"]["absent"]) {
            (Value::Object(_), Value::Null) => {}
            (Value::Null, Value::Object(absent)) => assert!(absent["reason"].as_str().is_some_and(|r| !r.is_empty()), "{capability}"),
            _ => panic!("neither present nor absent: {capability}"),
        }
    }
    let cpu = capability(&probe, "load.stat");
    assert_eq!(cpu["recorded"], true);
    assert!(cpu["found"]["present"]["cost_ns"].as_u64().is_some(), "{cpu}");
    assert_eq!(capability(&probe, "inference.builtin")["found"]["present"]["facts"]["engine"], "rten");
    let text = lab.run(&["probe"]).expect(0).stdout();
    assert!(text.starts_with("here: ") && text.contains("can measure") && text.contains("may do"), "{text}");
    // No keeper was needed, and none is left.
    assert!(lab.processes().is_empty());
}

#[test]
fn tools_where_people_build_them_are_found_with_their_version() {
    let lab = Lab::new();
    lab.write("home/llama.cpp/build/bin/llama-bench", "#!/bin/sh\necho 'version: 4321 (abcdef0)' >&2\necho 'built with cc' >&2\n");
    lab.write("home/.local/lib/python3.11/site-packages/onnxruntime/capi/libonnxruntime.so.1.99.0", "");
    let probe = json(&lab.run(&["probe", "--json"]).expect(0));
    let bench = capability(&probe, "inference.llama-bench");
    if bench["source"] == lab.path("home/llama.cpp/build/bin/llama-bench").display().to_string() {
        assert_eq!(bench["found"]["present"]["facts"]["version"], "4321 (abcdef0)");
    } else {
        eprintln!("skipped: the version of a made-up llama-bench (a real one is on the path)");
    }
    let libraries = probe["devices"][0]["capabilities"].as_array().unwrap();
    let ours = |c: &&Value| c["source"].as_str().is_some_and(|s| s.ends_with("libonnxruntime.so.1.99.0"));
    assert_eq!(libraries.iter().find(ours).unwrap()["found"]["present"]["facts"]["version"], "1.99.0");
}

#[test]
fn a_tool_that_does_not_answer_is_ended_with_its_children() {
    let lab = Lab::new();
    // Not on the path, so that a real one is not in its way.
    let script = "#!/bin/sh\ntrap '' TERM\nsleep 1000 &\nwhile :; do sleep 1000; done\n";
    lab.write("home/llama.cpp/build/bin/llama-server", script);
    let probe = json(&lab.run(&["probe", "--json"]).expect(0));
    let server = capability(&probe, "inference.llama-server");
    if server["source"] != lab.path("home/llama.cpp/build/bin/llama-server").display().to_string() {
        eprintln!("skipped: a tool that hangs (a real llama-server is on the path)");
        return;
    }
    let absent = &server["found"]["absent"];
    assert_eq!(absent["cause"], "no_answer", "{server}");
    assert_eq!(absent["reason"], "no answer within 5 s");
    assert!(absent["remedy"].as_str().unwrap().contains("llama-server"), "{server}");
    eventually("nothing of it is left", || lab.processes().is_empty().then_some(()));
    let script = lab.path("home/llama.cpp/build/bin/llama-server").display().to_string();
    let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|e| fs::read(e.path().join("cmdline")).ok());
    assert!(!pids.map(|line| String::from_utf8_lossy(&line).into_owned()).any(|line| line.contains(&script)), "the tool lives on");
}

#[test]
fn sensors_of_the_real_sys_are_found_and_one_that_hangs_hangs_nothing() {
    let lab = Lab::new();
    if !is_root() {
        eprintln!("skipped: sensors laid over /sys (only root may mount)");
        return;
    }
    let zone = |n: u32, kind: &str| {
        lab.write(&format!("fake/class/thermal/thermal_zone{n}/type"), kind);
        lab.path(&format!("fake/class/thermal/thermal_zone{n}/temp"))
    };
    fs::write(zone(0, "cpu-thermal\n"), "48312\n").unwrap();
    fifo(&zone(1, "gpu-thermal\n"));
    lab.write("fake/class/powercap/intel-rapl:0/name", "package-0\n");
    lab.write("fake/class/powercap/intel-rapl:0/energy_uj", "1234567\n");
    let mount = "mount -t overlay ovl -o lowerdir=\"$0\":/sys /sys 2>/dev/null || exit 77; exec \"$@\"";
    let fake = lab.path("fake").display().to_string();
    let mut command = lab.isotherm_inside(&["unshare", "-m", "sh", "-c", mount, &fake], &["probe", "--json"]);
    let ran = match command.output() {
        Ok(output) if output.status.code() == Some(77) => {
            eprintln!("skipped: sensors laid over /sys (mounting an overlay is not permitted here)");
            return;
        }
        Ok(output) => Ran(output).expect(0),
        Err(e) => {
            eprintln!("skipped: sensors laid over /sys (no unshare: {e})");
            return;
        }
    };
    let probe = json(&ran);
    let zone = capability(&probe, "temperature.thermal_zone0");
    assert_eq!((&zone["name"], &zone["found"]["present"]["value"]), (&"cpu-thermal".into(), &48312.0.into()));
    assert_eq!(capability(&probe, "temperature.thermal_zone1")["found"]["absent"]["cause"], "no_answer");
    assert_eq!(capability(&probe, "energy.rapl.package-0")["found"]["present"]["value"], 1_234_567.0);
    // The rest of the real one shines through.
    assert!(capability(&probe, "load.stat")["found"]["present"].is_object());
}
