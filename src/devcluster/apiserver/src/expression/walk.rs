//! Walks and rewrites the parts of an expression.

use cel::common::ast::{EntryExpr, Expr, IdedExpr};

/// Calls `each` with every direct part.
pub(crate) fn visit_parts(expression: &Expr, each: &mut dyn FnMut(&IdedExpr)) {
    let entry = |entry: &EntryExpr, each: &mut dyn FnMut(&IdedExpr)| match entry {
        EntryExpr::StructField(field) => each(&field.value),
        EntryExpr::MapEntry(entry) => {
            each(&entry.key);
            each(&entry.value);
        }
    };
    match expression {
        Expr::Call(call) => {
            call.target.iter().for_each(|target| each(target));
            call.args.iter().for_each(each);
        }
        Expr::Comprehension(c) => {
            [&c.iter_range, &c.accu_init, &c.loop_cond, &c.loop_step, &c.result].into_iter().for_each(each);
        }
        Expr::List(list) => list.elements.iter().for_each(each),
        Expr::Map(map) => map.entries.iter().for_each(|e| entry(&e.expr, each)),
        Expr::Struct(object) => object.entries.iter().for_each(|e| entry(&e.expr, each)),
        Expr::Select(select) => each(&select.operand),
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
    }
}

/// Collects the names that comprehensions bind.
pub(crate) fn binders(expression: &IdedExpr, names: &mut Vec<String>) {
    if let Expr::Comprehension(comprehension) = &expression.expr {
        names.push(comprehension.iter_var.clone());
        names.push(comprehension.accu_var.clone());
        names.extend(comprehension.iter_var2.clone());
    }
    visit_parts(&expression.expr, &mut |part| binders(part, names));
}

/// Returns the first field selected from one of these variables.
pub(crate) fn selected(expression: &IdedExpr, variables: &[&str]) -> Option<String> {
    if let Expr::Select(select) = &expression.expr
        && let Expr::Ident(name) = &select.operand.expr
        && variables.contains(&name.as_str())
    {
        return Some(select.field.clone());
    }
    let mut found = None;
    visit_parts(&expression.expr, &mut |part| {
        if found.is_none() {
            found = selected(part, variables);
        }
    });
    found
}

/// Returns the fields selected from a variable, without duplicates, in order of occurrence.
pub(crate) fn selections(expression: &IdedExpr, variable: &str) -> Vec<String> {
    let mut found = Vec::new();
    collect_selections(expression, variable, &mut found);
    found
}

fn collect_selections(expression: &IdedExpr, variable: &str, found: &mut Vec<String>) {
    if let Expr::Select(select) = &expression.expr
        && select.operand.expr == Expr::Ident(variable.to_owned())
        && !found.contains(&select.field)
    {
        found.push(select.field.clone());
    }
    visit_parts(&expression.expr, &mut |part| collect_selections(part, variable, found));
}

/// Replaces every selection of `field` from the variable `object` by a variable named `object.field`.
pub(crate) fn name_selection(expression: &mut IdedExpr, object: &str, field: &str) {
    replace_selection(expression, object, field, &Expr::Ident(format!("{object}.{field}")));
}

/// Replaces every selection of `field` from the variable `object`.
pub(crate) fn replace_selection(expression: &mut IdedExpr, object: &str, field: &str, with: &Expr) {
    if let Expr::Select(select) = &expression.expr
        && !select.test
        && select.field == field
        && select.operand.expr == Expr::Ident(object.to_owned())
    {
        expression.expr = with.clone();
        return;
    }
    let each = |part: &mut IdedExpr| replace_selection(part, object, field, with);
    match &mut expression.expr {
        Expr::Call(call) => {
            call.target.iter_mut().for_each(|target| each(target));
            call.args.iter_mut().for_each(each);
        }
        Expr::Comprehension(c) => {
            [&mut c.iter_range, &mut c.accu_init, &mut c.loop_cond, &mut c.loop_step, &mut c.result]
                .into_iter()
                .for_each(each);
        }
        Expr::List(list) => list.elements.iter_mut().for_each(each),
        Expr::Map(map) => {
            for entry in &mut map.entries {
                if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                    each(&mut entry.key);
                    each(&mut entry.value);
                }
            }
        }
        Expr::Select(select) => each(&mut select.operand),
        Expr::Struct(_) | Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
    }
}
