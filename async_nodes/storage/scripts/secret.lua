-- secret: agree on the key of the MAC in task ids. Argument: a proposal. Writes secret once.
redis.call('SETNX', B .. 'secret', ARGV[1])
return redis.call('GET', B .. 'secret')
