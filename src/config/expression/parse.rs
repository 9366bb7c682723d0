//! From text to the tree of an expression.

use super::{Comparison, Expression, Fault, Kind, Node, Operator};
use crate::config::{
    diagnose::{nearest, tick},
    model::AxisValue,
};
use std::ops::Range;

/// Levels of brackets, and links of a chain of arithmetic.
const DEEPEST: usize = 60;

/// Words, numbers and signs.
const MOST_TOKENS: usize = 1000;

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
