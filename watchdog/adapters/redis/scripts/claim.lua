-- Hand out due messages and hide each for a while: a sender that dies with one loses nothing.
-- KEYS: 1 outbox  2 outbox bodies  3 outbox tries    ARGV: now (ms), hidden until (ms), at most
local out = {}
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[3])) do
    redis.call('ZADD', KEYS[1], ARGV[2], member)
    local tries = redis.call('HINCRBY', KEYS[3], member, 1)
    table.insert(out, {member, redis.call('HGET', KEYS[2], member), tries})
end
return out
