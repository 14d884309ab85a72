-- One transition: version checks first, then every write, so that all of it happens or nothing.
-- A script is atomic in Redis but is not rolled back on an error, hence no write before the last check.
--
-- KEYS: 1 job  2 migration  3 notice  4 jobs  5 migrations  6 migrations of the job  7 due  8 journal  9 events
--       10 notices  11 decisions  12 decision bodies  13 history  14 pool memory  15 instances  16 outbox  17 outbox bodies
--       18 active jobs  19 open migrations of the job
-- ARGV[1]: the change as JSON (codec.py says which fields)
local change = cjson.decode(ARGV[1])

local function check(key, record)
    if not record then return true end
    local version = tonumber(redis.call('HGET', key, 'version') or '0')
    return version == record.expected
end

if not check(KEYS[1], change.job) then return 'job' end
if not check(KEYS[2], change.migration) then return 'migration' end
if not check(KEYS[3], change.notice) then return 'notice' end

local function write(key, record)
    redis.call('HSET', key, 'version', record.expected + 1, 'body', record.body)
end

if change.job then
    write(KEYS[1], change.job)
    redis.call('ZADD', KEYS[4], change.job.score, change.job.id)
    redis.call(change.job.over and 'SREM' or 'SADD', KEYS[18], change.job.id)
end
if change.migration then
    write(KEYS[2], change.migration)
    redis.call('ZADD', KEYS[5], change.migration.score, change.migration.id)
    redis.call('ZADD', KEYS[6], change.migration.score, change.migration.id)
    if change.migration.due then
        redis.call('ZADD', KEYS[7], change.migration.due, change.migration.id)
    else
        redis.call('ZREM', KEYS[7], change.migration.id)
    end
    redis.call(change.migration.closed and 'SREM' or 'SADD', KEYS[19], change.migration.id)
    for _, instance in ipairs(change.instances) do
        redis.call('HSET', KEYS[15], instance, change.migration.job_id)
    end
end
if change.notice then
    write(KEYS[3], change.notice)
    redis.call('ZADD', KEYS[10], change.notice.score, change.notice.id)
end
if change.decision then
    redis.call('ZADD', KEYS[11], change.decision.score, change.decision.id)
    redis.call('HSET', KEYS[12], change.decision.id, change.decision.body)
end
for _, entry in ipairs(change.journal) do
    redis.call('RPUSH', KEYS[8], entry)
    redis.call('XADD', KEYS[9], 'MAXLEN', '~', 100000, '*', 'body', entry)
end
for _, observation in ipairs(change.observations) do
    redis.call('XADD', KEYS[13], 'MAXLEN', '~', 1000000, '*', 'body', observation.body)
    for name, moment in pairs(observation.memory) do
        if moment == '' then
            redis.call('HDEL', KEYS[14], name)
        else
            redis.call('HSET', KEYS[14], name, moment)
        end
    end
end
for _, message in ipairs(change.messages) do
    redis.call('ZADD', KEYS[16], message.due, message.member)
    redis.call('HSET', KEYS[17], message.member, message.body)
end
return 'ok'
