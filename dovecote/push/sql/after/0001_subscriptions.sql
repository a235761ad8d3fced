-- Every change of a subscription is counted.
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON {schema}.subscriptions
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.changed();
