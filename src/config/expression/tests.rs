//! Expressions of `when`.

#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use std::collections::BTreeMap;

const NAMES: [&str; 5] = ["threads", "my-mode", "my", "flags.-fa", "n"];

fn point() -> BTreeMap<&'static str, AxisValue> {
    [
        ("threads", AxisValue::Int(4)),
        ("my-mode", AxisValue::Text("fast".into())),
        ("my", AxisValue::Int(7)),
        ("flags.-fa", AxisValue::Text("on".into())),
        ("n", AxisValue::Float(0.5)),
    ]
    .into()
}

fn ask(source: &str) -> Result<Result<bool, String>, String> {
    let expression = Expression::parse(source, NAMES).unwrap_or_else(|fault| panic!("{source}: {fault:?}"));
    expression.ask(&|name| match point().get(name) {
        Some(value) => Known::Value(value.clone()),
        None if name.starts_with("model.") => Known::Nothing,
        None => Known::NotYet,
    })
}

#[test]
fn precedence_is_that_of_the_reader() {
    for (source, expected) in [
        ("1 + 2 * 3 == 7", true),
        ("(1 + 2) * 3 == 9", true),
        ("2 ** 3 ** 2 == 64", true),
        ("-2 ** 2 == 4 and 0 - 2 ** 2 == -4", true),
        ("7 // 2 == 3 and 7 % 4 == 3 and 7 / 2 == 3.5", true),
        ("10 - 3 - 2 == 5", true),
        ("not threads == 4 or threads == 4", true),
        ("not (threads == 4 or threads == 5)", false),
        ("true or false and false", true),
        ("1 <= threads < 4", false),
        ("1 <= threads <= 4 == 4", true),
        ("threads in [1, 2, 2 + 2,]", true),
        ("threads not in [1, 2]", true),
        ("not threads in [4]", false),
        ("threads in []", false),
        ("n * 8 == threads", true),
        ("8 * 1024**3 == 8589934592", true),
        ("9007199254740993 == 9007199254740992", false),
        ("1e3 == 1000 and 1.5e-1 < n", true),
        ("my-mode == 'fast' and my - 3 == threads and my-mode != \"my\"", true),
        ("flags.-fa=='on'", true),
        ("my-mode == 'it\\'s' or my-mode == \"fast\"", true),
    ] {
        assert_eq!(ask(source), Ok(Ok(expected)), "{source}");
    }
}

#[test]
fn what_is_not_known_yet_leaves_open_what_it_decides_and_nothing_else() {
    let open = |name: &str| Ok(Err(name.to_owned()));
    for (source, expected) in [
        ("device.cpus == 8", open("device.cpus")),
        ("device.cpus in [4, 8]", open("device.cpus")),
        ("not device.cpus == 8", open("device.cpus")),
        ("device.cpus * 2 > threads", open("device.cpus")),
        ("threads == 5 and device.cpus == 8", Ok(Ok(false))),
        ("device.cpus == 8 and threads == 5", Ok(Ok(false))),
        ("device.cpus == 8 or threads == 4", Ok(Ok(true))),
        ("device.cpus == 8 and threads == 4", open("device.cpus")),
        ("threads in [device.cpus, 4]", Ok(Ok(true))),
        ("device.cpus < threads < 4", Ok(Ok(false))),
    ] {
        assert_eq!(ask(source), expected, "{source}");
    }
}

#[test]
fn what_is_not_there_is_equal_to_nothing_and_has_no_size() {
    assert_eq!(ask("model.tags.family == 'x'"), Ok(Ok(false)));
    assert_eq!(ask("model.tags.family != 'x'"), Ok(Ok(true)));
    assert_eq!(ask("model.tags.family in ['x']"), Ok(Ok(false)));
    assert_eq!(ask("model.bytes > 5"), Err("`model.bytes` has no value there".into()));
    assert_eq!(ask("threads / 0 > 5"), Err("`4` is divided by zero".into()));
    assert_eq!(ask("threads ** 9999 > 5"), Err("`4` and `9999` give no number that can be kept".into()));
    assert_eq!(ask("threads == 4 or model.bytes > 5"), Ok(Ok(true)), "the first part decides");
}

#[test]
fn what_can_never_be_true_is_found_without_a_point() {
    let kinds = |name: &str| point().get(name).map_or(Kinds::ANY, Kinds::of);
    let check = |source: &str| Expression::parse(source, NAMES).unwrap().check(&kinds).map_err(|fault| (source[fault.at].to_owned(), fault.message));
    let fault = |at: &str, message: &str| Err((at.to_owned(), message.to_owned()));
    assert_eq!(check("threads == '4'"), fault("'4'", "this is text, and never equal to a number: leave the quotes out"));
    assert_eq!(check("4 == flags.-fa"), fault("4", "this is a number, and never equal to text: put it in quotes"));
    assert_eq!(check("threads in [1, '2']"), fault("'2'", "this is text, and never equal to a number: leave the quotes out"));
    assert_eq!(check("my-mode < 'x'"), fault("my-mode", "only numbers are larger or smaller: a number, and this is text"));
    assert_eq!(check("threads + 1"), fault("threads + 1", "a condition is true or false, and this is a number"));
    assert_eq!(check("threads and n < 1"), fault("threads", "`and` takes true or false, and this is a number"));
    assert_eq!(check("my-mode * 2 == 4"), fault("my-mode", "arithmetic takes a number, and this is text"));
    assert_eq!(check("device.x == 4 or device.x == 'a'"), Ok(()));
}

#[test]
fn what_is_no_expression_is_shown_where_it_stops() {
    let fault = |source: &str| Expression::parse(source, NAMES).map_err(|fault| (source[fault.at].to_owned(), fault.message)).unwrap_err();
    for (source, at, message) in [
        ("threads <", "<", "a name, a number or a text in quotes is missing behind this"),
        ("threads && n", "&&", "write `and`"),
        ("threads == 1 || n == 2", "||", "write `or`"),
        ("threads = 1", "=", "write `==`"),
        ("threads == 1 adn n == 2", "adn", "a comparison, `and` or `or` is missing in front of this; did you mean `and`?"),
        ("my-mode|upper == 'X'", "|", "functions and filters are not known here"),
        ("max(threads, 2) == 2", "max(threads, 2)", "functions and filters are not known here"),
        ("my-mode == 'fast", "'fast", "a text without the `'` at its end"),
        ("(threads == 1", "1", "the closing `)` is missing"),
        ("threads in (1, 2)", "(1, 2)", "`in` takes a list in brackets, like `threads in [1, 2]`"),
        ("threads in [1 2]", "2", "a `,` or the closing `]` is missing"),
        ("threads <= 4x", "4x", "`4x` is no number; texts stand in quotes"),
        ("threads == 1)", ")", "`)` without the bracket that opens it"),
        ("threads ~ 1", "~", "this character has no meaning here"),
    ] {
        assert_eq!(fault(source), (at.to_owned(), message.to_owned()), "{source}");
    }
    assert_eq!(fault(&("(".repeat(10_000) + "n")).1, "the condition has more than 4000 bytes");
    assert_eq!(fault(&("(".repeat(500) + "n")).1, "too many levels of brackets, or links of one calculation");
    assert_eq!(fault(&("1+".repeat(400) + "n")).1, "too many levels of brackets, or links of one calculation");
    assert_eq!(fault("").1, "a name, a number or a text in quotes is missing behind this");
}

#[test]
fn any_text_is_an_expression_or_a_fault_inside_of_it() {
    let pieces =
        ["threads", "my-mode", "(", ")", "[", "]", ",", " in ", " not ", " and ", "==", "<", "-", "**", "'", "\"", "é", "1", ".", "e", "|", "\\"];
    let mut state = 3_u64;
    for _ in 0..20_000 {
        let mut source = String::new();
        for _ in 0..9 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            source += pieces[(state >> 33) as usize % pieces.len()];
        }
        match Expression::parse(&source, NAMES) {
            Ok(expression) => _ = (expression.check(&|_| Kinds::ANY), expression.ask(&|_| Known::NotYet)),
            Err(fault) => assert!(source.get(fault.at.clone()).is_some(), "{source:?} {fault:?}"),
        }
    }
}
