//! The expressions of `when`: read into a tree, checked for what can be compared, and asked about one point.
//!
//! Strict where a slip would leave points out silently: texts and numbers are never equal, and only numbers are larger or smaller. What
//! isn't known yet makes an answer unknown, unless the rest decides it alone.

use super::{
    diagnose::{nearest, tick},
    model::AxisValue,
};
use std::{fmt, ops::Range};

/// Levels of brackets, and links of a chain of arithmetic.
const DEEPEST: usize = 60;

/// Words, numbers and signs.
const MOST_TOKENS: usize = 1000;

/// What is wrong with an expression, and where in its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub at: Range<usize>,
    pub message: String,
}

/// What is known of a name.
#[derive(Debug, Clone, PartialEq)]
pub enum Known {
    Value(AxisValue),
    /// The device has never said.
    NotYet,
    /// It was asked, and there is no such thing.
    Nothing,
}

/// An expression that was understood.
#[derive(Debug)]
pub struct Expression {
    root: Node,
}

#[derive(Debug)]
struct Node {
    at: Range<usize>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Value(AxisValue),
    Name(String),
    Not(Box<Node>),
    /// At least two.
    And(Vec<Node>),
    Or(Vec<Node>),
    /// `a < b <= c`: each with its neighbour.
    Compare(Box<Node>, Vec<(Comparison, Node)>),
    In {
        value: Box<Node>,
        list: Vec<Node>,
        inside: bool,
    },
    Arithmetic(Box<Node>, Operator, Box<Node>),
    Negative(Box<Node>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    Unequal,
    Less,
    AtMost,
    More,
    AtLeast,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Plus,
    Minus,
    Times,
    Divide,
    DivideWhole,
    Remainder,
    Power,
}

/// Which kinds of values something can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kinds(u8);

impl Kinds {
    pub const NUMBER: Kinds = Kinds(1);
    pub const TEXT: Kinds = Kinds(2);
    pub const TRUTH: Kinds = Kinds(4);
    /// Several texts at once: an option that is given more than once.
    pub const TEXTS: Kinds = Kinds(8);
    pub const ANY: Kinds = Kinds(15);

    #[must_use]
    pub fn of(value: &AxisValue) -> Kinds {
        match value {
            AxisValue::Bool(_) => Kinds::TRUTH,
            AxisValue::Int(_) | AxisValue::Float(_) => Kinds::NUMBER,
            AxisValue::Text(_) => Kinds::TEXT,
            AxisValue::List(_) => Kinds::TEXTS,
        }
    }

    #[must_use]
    pub fn or(self, other: Kinds) -> Kinds {
        Kinds(self.0 | other.0)
    }

    fn meets(self, other: Kinds) -> bool {
        self.0 & other.0 != 0
    }
}

impl fmt::Display for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [(Kinds::NUMBER, "a number"), (Kinds::TEXT, "text"), (Kinds::TRUTH, "true or false"), (Kinds::TEXTS, "a list of texts")];
        let words: Vec<&str> = words.into_iter().filter(|(kind, _)| self.meets(*kind)).map(|(_, word)| word).collect();
        f.write_str(&words.join(" or "))
    }
}

/// An answer as far as it is known.
enum Answer {
    Value(AxisValue),
    /// There is no such thing: equal to nothing.
    Nothing(String),
    /// This name isn't known yet.
    NotYet(String),
}

impl Expression {
    /// Reads an expression. `names` may be written as they are, with what else they contain, as in `flags.-fa`.
    ///
    /// # Errors
    /// The first place that isn't understood.
    pub fn parse<'n>(source: &str, names: impl IntoIterator<Item = &'n str>) -> Result<Expression, Fault> {
        let tokens = tokens(source, &names.into_iter().collect::<Vec<_>>())?;
        let end = source.trim_end().len();
        let mut parser = Parser { tokens: &tokens, next: 0, depth: 0, end };
        let root = parser.either()?;
        parser.finished()?;
        Ok(Expression { root })
    }

    /// Names that it uses with their places, in its order, with repeats.
    #[must_use]
    pub fn names(&self) -> Vec<(&str, Range<usize>)> {
        let mut names = Vec::new();
        self.root.each(&mut |node| {
            if let Kind::Name(name) = &node.kind {
                names.push((name.as_str(), node.at.clone()));
            }
        });
        names
    }

    /// Names with the texts that they are asked to be equal to, and where these stand.
    #[must_use]
    pub fn compared_texts(&self) -> Vec<(&str, &str, Range<usize>)> {
        let mut found = Vec::new();
        self.root.each(&mut |node| match &node.kind {
            Kind::Compare(first, rest) => {
                let left = std::iter::once(&**first).chain(rest.iter().map(|(_, node)| node));
                found.extend(left.zip(rest).flat_map(|(left, (_, right))| [(left, right), (right, left)]));
            }
            Kind::In { value, list, .. } => found.extend(list.iter().map(|item| (&**value, item))),
            _ => {}
        });
        let texts = found.into_iter().filter_map(|(name, text)| match (&name.kind, &text.kind) {
            (Kind::Name(name), Kind::Value(AxisValue::Text(value))) => Some((name.as_str(), value.as_str(), text.at.clone())),
            _ => None,
        });
        texts.collect()
    }

    /// Checks that what is compared can be compared, and that the whole is true or false.
    ///
    /// # Errors
    /// The first place that never has an answer.
    pub fn check(&self, kinds_of: &dyn Fn(&str) -> Kinds) -> Result<(), Fault> {
        self.root.needs(Kinds::TRUTH, "a condition is", kinds_of)
    }

    /// Asks it about one point.
    ///
    /// # Errors
    /// Values that have no answer, in words.
    pub fn ask(&self, known: &dyn Fn(&str) -> Known) -> Result<Result<bool, String>, String> {
        Ok(match self.root.ask(known)? {
            Answer::Value(AxisValue::Bool(value)) => Ok(value),
            Answer::Value(value) => return Err(format!("it gives `{value}`, which is neither true nor false")),
            Answer::Nothing(name) => return Err(missing(&name)),
            Answer::NotYet(name) => Err(name),
        })
    }
}

fn missing(name: &str) -> String {
    format!("{} has no value there", tick(name))
}

impl Node {
    fn each<'n>(&'n self, visit: &mut dyn FnMut(&'n Node)) {
        visit(self);
        match &self.kind {
            Kind::Value(_) | Kind::Name(_) => {}
            Kind::Not(inner) | Kind::Negative(inner) => inner.each(visit),
            Kind::And(all) | Kind::Or(all) => all.iter().for_each(|node| node.each(visit)),
            Kind::Compare(first, rest) => {
                first.each(visit);
                rest.iter().for_each(|(_, node)| node.each(visit));
            }
            Kind::In { value, list, .. } => {
                value.each(visit);
                list.iter().for_each(|node| node.each(visit));
            }
            Kind::Arithmetic(left, _, right) => {
                left.each(visit);
                right.each(visit);
            }
        }
    }

    /// Which kinds of values it may give; a fault where it can give none.
    fn kinds(&self, of: &dyn Fn(&str) -> Kinds) -> Result<Kinds, Fault> {
        match &self.kind {
            Kind::Value(value) => Ok(Kinds::of(value)),
            Kind::Name(name) => Ok(of(name)),
            Kind::Not(inner) => inner.needs(Kinds::TRUTH, "`not` takes", of).map(|()| Kinds::TRUTH),
            Kind::And(all) | Kind::Or(all) => {
                let word = if matches!(self.kind, Kind::And(_)) { "`and` takes" } else { "`or` takes" };
                all.iter().try_for_each(|node| node.needs(Kinds::TRUTH, word, of)).map(|()| Kinds::TRUTH)
            }
            Kind::Compare(first, rest) => {
                let left = std::iter::once(&**first).chain(rest.iter().map(|(_, node)| node));
                for (left, (comparison, right)) in left.zip(rest) {
                    if matches!(comparison, Comparison::Equal | Comparison::Unequal) {
                        left.may_equal(right, of)?;
                    } else {
                        left.needs(Kinds::NUMBER, "only numbers are larger or smaller:", of)?;
                        right.needs(Kinds::NUMBER, "only numbers are larger or smaller:", of)?;
                    }
                }
                Ok(Kinds::TRUTH)
            }
            Kind::In { value, list, .. } => list.iter().try_for_each(|item| value.may_equal(item, of)).map(|()| Kinds::TRUTH),
            Kind::Arithmetic(left, _, right) => {
                left.needs(Kinds::NUMBER, "arithmetic takes", of)?;
                right.needs(Kinds::NUMBER, "arithmetic takes", of)?;
                Ok(Kinds::NUMBER)
            }
            Kind::Negative(inner) => inner.needs(Kinds::NUMBER, "arithmetic takes", of).map(|()| Kinds::NUMBER),
        }
    }

    fn needs(&self, wanted: Kinds, why: &str, of: &dyn Fn(&str) -> Kinds) -> Result<(), Fault> {
        let kinds = self.kinds(of)?;
        if kinds.meets(wanted) {
            return Ok(());
        }
        Err(Fault { at: self.at.clone(), message: format!("{why} {wanted}, and this is {kinds}") })
    }

    fn may_equal(&self, other: &Node, of: &dyn Fn(&str) -> Kinds) -> Result<(), Fault> {
        let (left, right) = (self.kinds(of)?, other.kinds(of)?);
        if left.meets(right) {
            return Ok(());
        }
        // The written value is the one to change.
        let (at, is, other) = if matches!(self.kind, Kind::Value(_)) { (&self.at, left, right) } else { (&other.at, right, left) };
        let quotes = match (is, other) {
            (Kinds::NUMBER | Kinds::TRUTH, Kinds::TEXT) => ": put it in quotes",
            (Kinds::TEXT, Kinds::NUMBER | Kinds::TRUTH) => ": leave the quotes out",
            _ => "",
        };
        Err(Fault { at: at.clone(), message: format!("this is {is}, and never equal to {other}{quotes}") })
    }

    fn ask(&self, known: &dyn Fn(&str) -> Known) -> Result<Answer, String> {
        match &self.kind {
            Kind::Value(value) => Ok(Answer::Value(value.clone())),
            Kind::Name(name) => Ok(match known(name) {
                Known::Value(value) => Answer::Value(value),
                Known::Nothing => Answer::Nothing(name.clone()),
                Known::NotYet => Answer::NotYet(name.clone()),
            }),
            Kind::Not(inner) => inner.truth(known).map(|truth| told(truth.map(|truth| !truth))),
            Kind::And(all) => decided(all, known, false),
            Kind::Or(all) => decided(all, known, true),
            Kind::Compare(first, rest) => {
                let mut unknown = None;
                let mut left = first.ask(known)?;
                for (comparison, right) in rest {
                    let right = right.ask(known)?;
                    match compare(&left, *comparison, &right)? {
                        Ok(false) => return Ok(told(Ok(false))),
                        Ok(true) => {}
                        Err(name) => _ = unknown.get_or_insert(name),
                    }
                    left = right;
                }
                Ok(told(unknown.map_or(Ok(true), Err)))
            }
            Kind::In { value, list, inside } => {
                let value = value.ask(known)?;
                let mut unknown = None;
                for item in list {
                    match compare(&value, Comparison::Equal, &item.ask(known)?)? {
                        Ok(true) => return Ok(told(Ok(*inside))),
                        Ok(false) => {}
                        Err(name) => _ = unknown.get_or_insert(name),
                    }
                }
                Ok(told(unknown.map_or(Ok(!inside), Err)))
            }
            Kind::Arithmetic(left, operator, right) => match (left.number(known)?, right.number(known)?) {
                (Ok(left), Ok(right)) => calculate(left, *operator, right).map(Answer::Value),
                (Err(name), _) | (_, Err(name)) => Ok(Answer::NotYet(name)),
            },
            Kind::Negative(inner) => match inner.number(known)? {
                Ok(number) => calculate(AxisValue::Int(0), Operator::Minus, number).map(Answer::Value),
                Err(name) => Ok(Answer::NotYet(name)),
            },
        }
    }

    /// `Err` inside has the name that isn't known yet.
    fn truth(&self, known: &dyn Fn(&str) -> Known) -> Result<Result<bool, String>, String> {
        match self.ask(known)? {
            Answer::Value(AxisValue::Bool(value)) => Ok(Ok(value)),
            Answer::Value(value) => Err(format!("`{value}` is neither true nor false")),
            Answer::Nothing(name) => Err(missing(&name)),
            Answer::NotYet(name) => Ok(Err(name)),
        }
    }

    /// Likewise.
    fn number(&self, known: &dyn Fn(&str) -> Known) -> Result<Result<AxisValue, String>, String> {
        match self.ask(known)? {
            Answer::Value(value @ (AxisValue::Int(_) | AxisValue::Float(_))) => Ok(Ok(value)),
            Answer::Value(value) => Err(format!("`{value}` is no number")),
            Answer::Nothing(name) => Err(missing(&name)),
            Answer::NotYet(name) => Ok(Err(name)),
        }
    }
}

fn told(truth: Result<bool, String>) -> Answer {
    truth.map_or_else(Answer::NotYet, |truth| Answer::Value(AxisValue::Bool(truth)))
}

/// The first part that is `decisive` decides; else one that isn't known leaves it open.
fn decided(all: &[Node], known: &dyn Fn(&str) -> Known, decisive: bool) -> Result<Answer, String> {
    let mut unknown: Option<String> = None;
    for node in all {
        match node.truth(known) {
            Ok(Ok(truth)) if truth == decisive => return Ok(told(Ok(decisive))),
            Ok(Ok(_)) => {}
            Ok(Err(name)) => _ = unknown.get_or_insert(name),
            // What isn't known yet may make this part superfluous.
            Err(why) => match unknown {
                Some(name) => return Ok(Answer::NotYet(name)),
                None => return Err(why),
            },
        }
    }
    Ok(told(unknown.map_or(Ok(!decisive), Err)))
}

fn compare(left: &Answer, comparison: Comparison, right: &Answer) -> Result<Result<bool, String>, String> {
    use Comparison::{AtLeast, AtMost, Equal, Less, More, Unequal};
    let (left, right) = match (left, right) {
        (Answer::NotYet(name), _) | (_, Answer::NotYet(name)) => return Ok(Err(name.clone())),
        (Answer::Nothing(name), _) | (_, Answer::Nothing(name)) => {
            return match comparison {
                Equal => Ok(Ok(false)),
                Unequal => Ok(Ok(true)),
                Less | AtMost | More | AtLeast => Err(missing(name)),
            };
        }
        (Answer::Value(left), Answer::Value(right)) => (left, right),
    };
    let ordering = order(left, right);
    Ok(Ok(match comparison {
        Equal => ordering.map_or(left == right, |ordering| ordering.is_eq()),
        Unequal => ordering.map_or(left != right, |ordering| ordering.is_ne()),
        _ => {
            let ordering = ordering.ok_or_else(|| format!("`{left}` and `{right}` are not both numbers, and only numbers are larger or smaller"))?;
            match comparison {
                Less => ordering.is_lt(),
                AtMost => ordering.is_le(),
                More => ordering.is_gt(),
                _ => ordering.is_ge(),
            }
        }
    }))
}

/// Of two numbers, exact for whole ones.
fn order(left: &AxisValue, right: &AxisValue) -> Option<std::cmp::Ordering> {
    match (left, right) {
        (AxisValue::Int(left), AxisValue::Int(right)) => Some(left.cmp(right)),
        _ => float(left)?.partial_cmp(&float(right)?),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a whole number beside a fraction")]
fn float(value: &AxisValue) -> Option<f64> {
    match value {
        AxisValue::Int(value) => Some(*value as f64),
        AxisValue::Float(value) => Some(*value),
        AxisValue::Bool(_) | AxisValue::Text(_) | AxisValue::List(_) => None,
    }
}

fn calculate(left: AxisValue, operator: Operator, right: AxisValue) -> Result<AxisValue, String> {
    use Operator::{Divide, DivideWhole, Minus, Plus, Power, Remainder, Times};
    let (Some(a), Some(b)) = (float(&left), float(&right)) else { return Err(format!("`{left}` and `{right}` are not both numbers")) };
    if b == 0.0 && matches!(operator, Divide | DivideWhole | Remainder) {
        return Err(format!("`{left}` is divided by zero"));
    }
    if let (AxisValue::Int(left), AxisValue::Int(right)) = (&left, &right) {
        let whole = match operator {
            Plus => left.checked_add(*right),
            Minus => left.checked_sub(*right),
            Times => left.checked_mul(*right),
            DivideWhole => left.checked_div_euclid(*right),
            Remainder => left.checked_rem_euclid(*right),
            Power => u32::try_from(*right).ok().and_then(|right| left.checked_pow(right)),
            Divide => None,
        };
        if let Some(whole) = whole {
            return Ok(AxisValue::Int(whole));
        }
    }
    let value = match operator {
        Plus => a + b,
        Minus => a - b,
        Times => a * b,
        Divide => a / b,
        DivideWhole => a.div_euclid(b),
        Remainder => a.rem_euclid(b),
        Power => a.powf(b),
    };
    if value.is_finite() { Ok(AxisValue::Float(value)) } else { Err(format!("`{left}` and `{right}` give no number that can be kept")) }
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Value(AxisValue),
    Name(String),
    /// A sign, or a word with a meaning.
    Sign(&'static str),
}

/// Longer ones first.
const SIGNS: [&str; 19] = ["**", "//", "<=", ">=", "==", "!=", "<", ">", "(", ")", "[", "]", ",", "+", "-", "*", "/", "%", "|"];

const WORDS: [&str; 4] = ["and", "or", "not", "in"];

fn tokens(source: &str, names: &[&str]) -> Result<Vec<(Token, Range<usize>)>, Fault> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(c) = source[at..].chars().next() {
        let rest = &source[at..];
        if c.is_whitespace() {
            at += c.len_utf8();
            continue;
        }
        let (token, len) = if c == '"' || c == '\'' {
            quoted(rest, at, c)?
        } else if c.is_ascii_digit() {
            number(rest, at)?
        } else if let Some(name) = named(rest, names) {
            (Token::Name(name.to_owned()), name.len())
        } else if is_of_name(c) && c != '.' {
            let len = rest.find(|c| !is_of_name(c)).unwrap_or(rest.len());
            // Options are written with their dashes.
            let len = if rest[..len].starts_with("flags.") { rest.find(|c| !is_of_name(c) && c != '-').unwrap_or(rest.len()) } else { len };
            let token = match (&rest[..len], WORDS.into_iter().find(|word| *word == &rest[..len])) {
                (_, Some(word)) => Token::Sign(word),
                ("true" | "True", _) => Token::Value(AxisValue::Bool(true)),
                ("false" | "False", _) => Token::Value(AxisValue::Bool(false)),
                (name, _) => Token::Name(name.to_owned()),
            };
            (token, len)
        } else if let Some(sign) = SIGNS.into_iter().find(|sign| rest.starts_with(sign) && !rest.starts_with("||")) {
            (Token::Sign(sign), sign.len())
        } else {
            let (message, len) = match c {
                '&' => ("write `and`", rest.len() - rest.trim_start_matches('&').len()),
                '|' => ("write `or`", 2),
                '=' => ("write `==`", 1),
                '!' => ("write `not`", 1),
                _ => ("this character has no meaning here", c.len_utf8()),
            };
            return Err(Fault { at: at..at + len, message: message.to_owned() });
        };
        tokens.push((token, at..at + len));
        at += len;
        if tokens.len() > MOST_TOKENS {
            return Err(Fault { at: at - len..at, message: format!("the condition has more than {MOST_TOKENS} words, numbers and signs") });
        }
    }
    Ok(tokens)
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '.'
}

/// The longest of these names that the text begins with.
fn named<'n>(text: &str, names: &[&'n str]) -> Option<&'n str> {
    let ends = |name: &str| !text[name.len()..].starts_with(is_of_name);
    let word = |name: &str| WORDS.contains(&name);
    names.iter().copied().filter(|name| !name.is_empty() && text.starts_with(name) && ends(name) && !word(name)).max_by_key(|name| name.len())
}

fn quoted(text: &str, at: usize, quote: char) -> Result<(Token, usize), Fault> {
    let mut value = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((i, c)) = chars.next() {
        if c == quote {
            return Ok((Token::Value(AxisValue::Text(value)), i + 1));
        }
        let next = if c == '\\' { text[i + 1..].chars().next().filter(|next| [quote, '\\'].contains(next)) } else { None };
        if let Some(next) = next {
            value.push(next);
            chars.next();
        } else {
            value.push(c);
        }
    }
    Err(Fault { at: at..at + text.trim_end().len(), message: format!("a text without the `{quote}` at its end") })
}

fn number(text: &str, at: usize) -> Result<(Token, usize), Fault> {
    let mut len = text.find(|c| !is_of_name(c)).unwrap_or(text.len());
    // The sign of an exponent.
    if text[..len].ends_with(['e', 'E']) && text[len..].starts_with(['+', '-']) {
        let exponent = text[len + 1..].find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len() - len - 1);
        len += 1 + exponent;
    }
    let written = &text[..len];
    let whole = written.bytes().all(|b| b.is_ascii_digit()).then(|| written.parse().ok()).flatten().map(AxisValue::Int);
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || b".eE+-".contains(&b));
    let value = whole.or_else(|| Some(written).filter(|text| digits(text))?.parse().ok().filter(|v: &f64| v.is_finite()).map(AxisValue::Float));
    match value {
        Some(value) => Ok((Token::Value(value), len)),
        None => Err(Fault { at: at..at + len, message: format!("{} is no number; texts stand in quotes", tick(written)) }),
    }
}

struct Parser<'t> {
    tokens: &'t [(Token, Range<usize>)],
    next: usize,
    depth: usize,
    /// Where the text ends.
    end: usize,
}

impl Parser<'_> {
    fn sign(&self) -> Option<&'static str> {
        match self.tokens.get(self.next) {
            Some((Token::Sign(sign), _)) => Some(sign),
            _ => None,
        }
    }

    fn take(&mut self, signs: &[&'static str]) -> Option<&'static str> {
        let sign = self.sign().filter(|sign| signs.contains(sign))?;
        self.next += 1;
        Some(sign)
    }

    /// Of the next token.
    fn at(&self) -> Range<usize> {
        self.tokens.get(self.next).map_or(self.end.saturating_sub(1)..self.end, |(_, at)| at.clone())
    }

    fn fault<T>(&self, message: impl Into<String>) -> Result<T, Fault> {
        Err(Fault { at: self.at(), message: message.into() })
    }

    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Fault>) -> Result<T, Fault> {
        if self.depth >= DEEPEST {
            return self.fault("too many levels of brackets and signs");
        }
        self.depth += 1;
        let found = read(self);
        self.depth -= 1;
        found
    }

    fn finished(&self) -> Result<(), Fault> {
        match self.tokens.get(self.next) {
            None => Ok(()),
            Some((Token::Sign("|"), _)) => self.fault("functions and filters are not known here"),
            Some((Token::Sign("("), _)) => self.fault("functions and filters are not known here"),
            Some((Token::Sign(sign @ (")" | "]")), _)) => self.fault(format!("`{sign}` without the bracket that opens it")),
            Some((Token::Name(word), _)) => {
                let known = WORDS.into_iter().chain(["=="]);
                let near = nearest(word, known).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                self.fault(format!("a comparison, `and` or `or` is missing in front of this{near}"))
            }
            Some(_) => self.fault("a comparison, `and` or `or` is missing in front of this"),
        }
    }

    fn either(&mut self) -> Result<Node, Fault> {
        self.joined("or", Kind::Or, |parser| parser.joined("and", Kind::And, Self::negated))
    }

    fn joined(&mut self, word: &'static str, kind: fn(Vec<Node>) -> Kind, part: fn(&mut Self) -> Result<Node, Fault>) -> Result<Node, Fault> {
        let mut all = vec![part(self)?];
        while self.take(&[word]).is_some() {
            all.push(part(self)?);
        }
        if all.len() == 1 {
            return Ok(all.swap_remove(0));
        }
        let at = all[0].at.start..all[all.len() - 1].at.end;
        Ok(Node { at, kind: kind(all) })
    }

    fn negated(&mut self) -> Result<Node, Fault> {
        let start = self.at().start;
        if self.take(&["not"]).is_none() {
            return self.compared();
        }
        let inner = self.deeper(Self::negated)?;
        Ok(Node { at: start..inner.at.end, kind: Kind::Not(Box::new(inner)) })
    }

    fn compared(&mut self) -> Result<Node, Fault> {
        let first = self.sum()?;
        let inside = match self.sign() {
            Some("in") => true,
            Some("not") if matches!(self.tokens.get(self.next + 1), Some((Token::Sign("in"), _))) => {
                self.next += 1;
                false
            }
            _ => return self.chained(first),
        };
        self.next += 1;
        if self.take(&["["]).is_none() {
            return self.fault("`in` takes a list in brackets, like `threads in [1, 2]`");
        }
        let list = self.deeper(Self::list)?;
        let at = first.at.start..self.tokens[self.next - 1].1.end;
        Ok(Node { at, kind: Kind::In { value: Box::new(first), list, inside } })
    }

    /// Up to the closing bracket.
    fn list(&mut self) -> Result<Vec<Node>, Fault> {
        let mut list = Vec::new();
        loop {
            if self.take(&["]"]).is_some() {
                return Ok(list);
            }
            list.push(self.sum()?);
            if self.take(&[","]).is_none() && self.sign() != Some("]") {
                return self.fault("a `,` or the closing `]` is missing");
            }
        }
    }

    fn chained(&mut self, first: Node) -> Result<Node, Fault> {
        let mut rest = Vec::new();
        while let Some(sign) = self.take(&["<", "<=", ">", ">=", "==", "!="]) {
            let comparison = match sign {
                "==" => Comparison::Equal,
                "!=" => Comparison::Unequal,
                "<" => Comparison::Less,
                "<=" => Comparison::AtMost,
                ">" => Comparison::More,
                _ => Comparison::AtLeast,
            };
            rest.push((comparison, self.sum()?));
        }
        match rest.last() {
            None => Ok(first),
            Some((_, last)) => Ok(Node { at: first.at.start..last.at.end, kind: Kind::Compare(Box::new(first), rest) }),
        }
    }

    fn sum(&mut self) -> Result<Node, Fault> {
        self.calculated(&["+", "-"], |parser| parser.calculated(&["*", "/", "//", "%"], Self::signed))
    }

    /// Left to right.
    fn calculated(&mut self, signs: &[&'static str], part: fn(&mut Self) -> Result<Node, Fault>) -> Result<Node, Fault> {
        let mut left = part(self)?;
        let mut n_links = 0;
        while let Some(sign) = self.take(signs) {
            let operator = match sign {
                "+" => Operator::Plus,
                "-" => Operator::Minus,
                "*" => Operator::Times,
                "/" => Operator::Divide,
                "//" => Operator::DivideWhole,
                _ => Operator::Remainder,
            };
            n_links += 1;
            if n_links > DEEPEST {
                return self.fault("too many links of one calculation");
            }
            let right = part(self)?;
            left = Node { at: left.at.start..right.at.end, kind: Kind::Arithmetic(Box::new(left), operator, Box::new(right)) };
        }
        Ok(left)
    }

    fn signed(&mut self) -> Result<Node, Fault> {
        let start = self.at().start;
        if self.take(&["-"]).is_some() {
            let inner = self.deeper(Self::signed)?;
            return Ok(Node { at: start..inner.at.end, kind: Kind::Negative(Box::new(inner)) });
        }
        let base = self.operand()?;
        if self.take(&["**"]).is_none() {
            return Ok(base);
        }
        let exponent = self.deeper(Self::signed)?;
        Ok(Node { at: start..exponent.at.end, kind: Kind::Arithmetic(Box::new(base), Operator::Power, Box::new(exponent)) })
    }

    fn operand(&mut self) -> Result<Node, Fault> {
        let at = self.at();
        let kind = match self.tokens.get(self.next) {
            Some((Token::Value(value), _)) => Kind::Value(value.clone()),
            Some((Token::Name(name), _)) => Kind::Name(name.clone()),
            Some((Token::Sign("("), _)) => {
                self.next += 1;
                let inner = self.deeper(Self::either)?;
                if self.take(&[")"]).is_none() {
                    return self.fault("the closing `)` is missing");
                }
                return Ok(inner);
            }
            Some((Token::Sign("["), _)) => return self.fault("a list stands behind `in`"),
            Some(_) => return self.fault("a name, a number or a text in quotes is missing in front of this"),
            None => return self.fault("a name, a number or a text in quotes is missing behind this"),
        };
        self.next += 1;
        if let (Kind::Name(_), Some("(")) = (&kind, self.sign()) {
            return self.fault("functions and filters are not known here");
        }
        Ok(Node { at, kind })
    }
}

#[cfg(test)]
mod tests {
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
    fn precedence_is_that_of_arithmetic() {
        for (source, expected) in [
            ("1 + 2 * 3 == 7", true),
            ("(1 + 2) * 3 == 9", true),
            ("2 ** 3 ** 2 == 512", true),
            ("-2 ** 2 == -4", true),
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
        let check =
            |source: &str| Expression::parse(source, NAMES).unwrap().check(&kinds).map_err(|fault| (source[fault.at].to_owned(), fault.message));
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
            ("max(threads, 2) == 2", "(", "functions and filters are not known here"),
            ("my-mode == 'fast", "'fast", "a text without the `'` at its end"),
            ("(threads == 1", "1", "the closing `)` is missing"),
            ("threads in (1, 2)", "(", "`in` takes a list in brackets, like `threads in [1, 2]`"),
            ("threads in [1 2]", "2", "a `,` or the closing `]` is missing"),
            ("threads <= 4x", "4x", "`4x` is no number; texts stand in quotes"),
            ("threads == 1)", ")", "`)` without the bracket that opens it"),
            ("threads ~ 1", "~", "this character has no meaning here"),
        ] {
            assert_eq!(fault(source), (at.to_owned(), message.to_owned()), "{source}");
        }
        assert_eq!(fault(&("(".repeat(10_000) + "n")).1, "the condition has more than 1000 words, numbers and signs");
        assert_eq!(fault(&("(".repeat(500) + "n")).1, "too many levels of brackets and signs");
        assert_eq!(fault(&("1+".repeat(400) + "n")).1, "too many links of one calculation");
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
}
