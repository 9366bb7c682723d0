//! An expression's answer at one point.

use super::{Comparison, Expression, Kind, Known, Node, Operator};
use crate::config::{diagnose::tick, model::AxisValue};

/// An answer as far as it is known.
enum Answer {
    Value(AxisValue),
    /// There is no such thing: equal to nothing.
    Nothing(String),
    /// This name isn't known yet.
    NotYet(String),
}

impl Expression {
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
